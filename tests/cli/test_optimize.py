"""`kn optimize`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from kn_graph import cpu_eval_graph, load_graph_from_onnx_path
from tests.cli.conftest import MODELS, Kn

DIGITS = MODELS / "digits.onnx"


def test_report_says_what_fired_and_what_is_left(kn: Kn) -> None:
    result = kn("optimize", DIGITS)
    assert result.code == 0
    assert "nodes before" in result.lines[0]
    assert "written" not in result.out


def test_output_is_the_optimized_model(kn: Kn, tmp_path: Path) -> None:
    out = tmp_path / "small.onnx"
    result = kn("optimize", DIGITS, "-o", out)
    assert (result.code, result.err) == (0, "")
    assert result.lines[-1].split() == ["written", str(out)]
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 21
    x = np.random.default_rng(0).random((2, 1, 8, 8), np.float32)
    got, want = (
        cpu_eval_graph(load_graph_from_onnx_path(p), {"image": x})["probabilities"]
        for p in (out, DIGITS)
    )
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_opset_and_sizes_are_those_asked_for(kn: Kn, tmp_path: Path) -> None:
    out = tmp_path / "fixed.onnx"
    arguments = ("--output", out, "--opset", "23", "--dim", "batch=4", "--json")
    facts = kn("optimize", DIGITS, *arguments).json()
    assert facts["written"] == str(out)
    model = onnx.load(out)
    assert model.opset_import[0].version == 23
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [4, 1, 8, 8]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--opset", "23"), "give -o OUT.onnx"),
        (("-o", "OUT", "--opset", "12"), "opset 12: models are written for 21 to"),
        (("-o", "OUT", "--opset", "x"), "invalid int value"),
        (("-o", "MISSING/OUT"), "cannot write"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(
    kn: Kn, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    given = [str(tmp_path / a) if "OUT" in a else a for a in arguments]
    assert text in kn("optimize", DIGITS, *given).error(2, "usage")
    assert list(tmp_path.iterdir()) == []
