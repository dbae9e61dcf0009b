"""The generated page of the documentation is what the code says."""

from __future__ import annotations

from pathlib import Path

from kn_graph.onnx.coverage import coverage, coverage_markdown

ROOT = Path(__file__).parents[2]


def test_the_page_of_supported_operators_is_up_to_date() -> None:
    page = (ROOT / "docs" / "supported-operators.md").read_text()
    assert page == coverage_markdown(), "run: kn support --markdown > docs/supported-operators.md"


def test_every_operator_of_the_standard_is_supported_except_those_named_as_gaps() -> None:
    lacking = [r.operator for r in coverage() if r.how in ("no", "partly")]
    gaps = (ROOT / "docs" / "known-gaps.md").read_text()
    assert all(operator.split(":")[-1] in gaps for operator in lacking)
    assert len(lacking) < 3
