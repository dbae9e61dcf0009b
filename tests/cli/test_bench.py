"""`kn bench`."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest

from kn_graph.errors import UsageError
from kn_runtime.cli import bench
from kn_runtime.cli import race as module
from kn_runtime.cli.race import Laps, Race, race
from tests.cli.conftest import MODELS, Kn

DIGITS = MODELS / "digits.onnx"
QUICK = ("--seconds", "0.02", "--turns", "2")


def test_both_engines_take_their_turns(kn: Kn) -> None:
    facts = kn("bench", DIGITS, *QUICK, "--threads", "1", "--json").json()
    assert [e["engine"] for e in facts["engines"]] == ["kn_runtime", "onnxruntime"]
    for engine in facts["engines"]:
        assert engine["calls"] >= 2 * 3
        assert len(engine["turn_medians_ms"]) == 2
        assert engine["p10_ms"] <= engine["median_ms"] <= engine["p90_ms"]
        assert engine["first_ms"] > 0
        assert engine["memory_bytes"] > 0
    ratios = facts["times_as_fast"]
    assert ratios["least"] <= ratios["median"] <= ratios["most"]
    assert facts["largest_difference"] < 1e-4
    assert (facts["threads"], facts["random"], facts["assumed"]) == (1, ["image"], {"batch": 1})


def test_what_is_printed(kn: Kn) -> None:
    result = kn("bench", DIGITS, *QUICK, columns=80)
    assert (result.code, result.err) == (0, "")
    assert result.lines[0].split()[0] == "engine"
    assert result.lines[1].startswith("kn (")
    assert result.lines[2].startswith("onnxruntime ")
    assert " times as fast as onnxruntime (" in result.out
    assert max(map(len, result.lines)) <= 80


def test_alone_where_nobody_else_is_wanted_or_there(
    kn: Kn, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = kn("bench", DIGITS, *QUICK, "--against", "none", "--json").json()
    assert len(facts["engines"]) == 1
    assert "times_as_fast" not in facts
    monkeypatch.setattr(bench, "is_installed", lambda engine: False)
    assert "onnxruntime is not installed" in kn("bench", DIGITS, *QUICK).out
    monkeypatch.setattr(module, "is_installed", lambda engine: engine != "onnxruntime")
    asked = kn("bench", DIGITS, *QUICK, "--against", "onnxruntime")
    assert "pip install onnxruntime" in asked.error(2, "usage")


def test_sizes_reach_the_engines(kn: Kn) -> None:
    facts = kn("bench", DIGITS, *QUICK, "--dim", "batch=3", "--json").json()
    assert facts["assumed"] == {}
    assert facts["engines"][0]["calls"]


def test_an_engine_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("nothing")
    settings = {"threads": 1, "device": "cpu", "dims": {}}
    with pytest.raises(UsageError, match=r"kn_runtime does not run .*this is a text file"):
        race(tmp_path / "model.onnx", {}, ["kn_runtime"], settings=settings)
    with pytest.raises(UsageError, match=r"no engine 'other' is known; there are kn_runtime"):
        race(tmp_path / "model.onnx", {}, ["other"], settings=settings)


def test_engines_are_not_what_lies_in_the_current_folder(
    tmp_path: Path, kn: Kn, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DIGITS.resolve()
    (tmp_path / "kn_runtime.py").write_text("raise ImportError('a stranger')")
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('a stranger')")
    monkeypatch.chdir(tmp_path)
    assert kn("bench", model, *QUICK).code == 0
    assert kn("compare", model, "--input", "random", "--against", "onnxruntime").code == 0


def test_numbers_of_laps() -> None:
    own = Laps("a", "1", 1, 1, 0, [[1, 2, 3], [2, 2, 8]])
    other = Laps("b", "1", 1, 1, 0, [[4, 4, 4], [1, 1, 1]])
    assert own.median_ms == statistics.median([1, 2, 3, 2, 2, 8])
    assert (own.quantile_ms(0.0), own.quantile_ms(0.9), own.quantile_ms(1.0)) == (1, 8, 8)
    assert Race([own, other], []).ratios(1) == [2, 0.5]


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 4.5], [3.0, 4.0], 0.5 / np.sqrt(12.5)),
        ([], [], 0.0),
        ([np.nan, 4.0], [3.0, 4.0], np.inf),
        ([3.0, 4.0], [3.0, np.inf], np.inf),
        ([np.nan, -np.inf, 2.0], [np.nan, -np.inf, 2.0], 0.0),
    ],
)
def test_the_largest_difference_is_in_units_of_the_output(
    ours: list[float], theirs: list[float], difference: float
) -> None:
    outputs = [{"y": np.array(x)} for x in (ours, theirs)]
    assert bench._difference(Race([], outputs)) == pytest.approx(difference)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--seconds", "0"), "expected a number of seconds, got '0'"),
        (("--turns", "x"), "expected a whole number of 1 or more"),
        (("--against", "other"), "'other'"),
    ],
)
def test_wrong_use_is_one_line(arguments: tuple[str, ...], text: str, kn: Kn) -> None:
    assert text in kn("bench", DIGITS, *arguments).error(2, "usage")
