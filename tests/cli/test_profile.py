"""`kn profile`."""

from __future__ import annotations

import re

import pytest

from kn_cpu.native import library
from tests.cli.conftest import MODELS, Kn

pytestmark = pytest.mark.skipif(library() is None, reason="there are no native kernels")

DIGITS = MODELS / "digits.onnx"


def test_a_row_for_each_step_then_kinds_and_facts(kn: Kn) -> None:
    result = kn("profile", DIGITS, "--runs", "2", "--threads", "1")
    assert (result.code, result.err) == (0, "")
    assert result.lines[0].split()[:4] == ["#", "node", "step", "computes"]
    assert result.lines[1].split()[:5] == ["0", "/conv1", "Conv", "+2", "1x8x8x8"]
    text = dict(line.split(None, 1) for line in result.lines)
    assert text["sizes"] == "batch = 1"
    assert "1 thread; measured" in text["device"].replace(")", "")
    assert "0 on the host; median of 2 runs" in text["steps"]


def test_json_and_the_text_are_of_the_same_steps(kn: Kn) -> None:
    facts = kn("profile", DIGITS, "--runs", "2", "--json").json()
    plan = kn("plan", DIGITS, "--json").json()
    assert [s["label"] for s in facts["steps"]] == [s["label"] for s in plan["steps"]]
    assert [s["flops"] for s in facts["steps"]] == [s["flops"] for s in plan["steps"]]
    assert facts["runs"] == 2
    assert facts["assumed"] == {"batch": 1}
    assert facts["random"] == ["image"]
    assert facts["peak"]["flops"] > 0


def test_sorted_and_cut(kn: Kn) -> None:
    result = kn(
        "profile", DIGITS, "--runs", "2", "--sort", "time", "--top", "2", "--dim", "batch=8"
    )
    rows = result.lines[1:3]
    times = [float(re.findall(r" ([0-9]+[.][0-9]) ", row)[0]) for row in rows]
    assert times == sorted(times, reverse=True)
    assert result.lines[3].startswith("step")


def test_given_inputs_are_used(kn: Kn) -> None:
    facts = kn("profile", DIGITS, "--input", f"image={MODELS / 'digit.png'}", "--json").json()
    assert facts["random"] == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--device", "reference"), "kn profile measures the planned CPU"),
        (("--threads", "0"), "expected a whole number of 1 or more, got '0'"),
        (("--runs", "x"), "expected a whole number of 1 or more, got 'x'"),
    ],
)
def test_wrong_use_is_one_line(kn: Kn, arguments: tuple[str, ...], text: str) -> None:
    assert text in kn("profile", DIGITS, *arguments).error(2, "usage")
