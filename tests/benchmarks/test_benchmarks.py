"""The benchmarks' own arithmetic, tables and page; nothing is timed here."""

import json
from collections.abc import Callable
from xml.dom.minidom import parseString

import numpy as np
import pytest

from benchmarks import report
from benchmarks.chart import Bar, Line, bars, lines
from benchmarks.engines import scaled_error
from benchmarks.figures import Benchmark, Case, Figure, Run, Total
from benchmarks.overhead import engines
from benchmarks.results import save
from benchmarks.rows import LIMITS, rows
from benchmarks.turns import Spread, few, interleave

TARGETS = {
    "resnet18 b1": 1.3,
    "resnet18 b8": 1.3,
    "resnet50 b1": 1.15,
    "mobilenetv2 b1": 1.05,
    "mobilenetv2 b8": 0.95,
    "bert_mini b1": 1.25,
    "bert_mini b8": 1.25,
    "vit_tiny b1": 1.1,
    "distilbert b1": 1.1,
    "lstm_crnn": 1.0,
    "convnext_tiny b1": 1.0,
    "gpt2 prefill": 1.0,
    "whisper_encoder b1": 1.0,
    "sd_unet b2": 1.0,
}


def test_every_promise_has_a_row():
    found = {row.name: row.target for row in rows()}
    assert {name: found.get(name) for name in TARGETS} == TARGETS


def test_rows_say_everything():
    names = [row.name for row in rows()]
    assert len(set(names)) == len(names)
    for row in rows():
        assert row.dtype in LIMITS
        assert row.file.endswith(".onnx")
        assert row.threads == 2
        assert row.dtype != "int8" or row.target in (0.6, 0.9)


def test_rows_are_chosen_by_name():
    assert [row.name for row in rows("^bert_mini b")] == ["bert_mini b1", "bert_mini b8"]


@pytest.mark.parametrize("measure", [few, lambda a, b, n: interleave(a, b, 0.0, n)])
def test_turns_alternate(measure: Callable):
    order: list[str] = []
    turns = measure(lambda: order.append("a"), lambda: order.append("b"), 6)
    assert turns.count == 6
    assert turns.ratio > 0
    last = "".join(order[-4:]) if measure is few else ""
    assert last in ("", "abba", "baab")


def test_a_spread_is_median_and_extremes():
    spread = Spread.of([3.0, 1.0, 2.0])
    assert (spread.median, spread.low, spread.high) == (2.0, 1.0, 3.0)
    assert str(spread) == "2.00 (1.00 to 3.00)"


def test_errors_are_relative_to_the_output():
    want = {"y": np.array([100.0, 0.0])}
    assert scaled_error(want, {"y": np.array([100.0, 0.0])}) == 0
    assert scaled_error(want, {"y": np.array([101.0, 0.0])}) == pytest.approx(1 / 170.7, rel=1e-2)
    assert scaled_error(want, {"y": np.array([100.0, np.nan])}) == np.inf
    assert scaled_error(want, {"y": np.array([100.0])}) == np.inf


def case(target: float | None, limit: float = 1e-3) -> Case:
    return Case("case", lambda seconds: Run(1.0, 2.0, 2.0), target, limit)


@pytest.mark.parametrize(
    ("target", "error", "verdict"),
    [(1.5, 0.0, "ok"), (2.5, 0.0, "below"), (None, 0.0, ""), (1.5, 0.1, "wrong")],
)
def test_verdicts(target, error, verdict):
    runs = [Run(1.0, 2.0, ratio, error) for ratio in (1.0, 2.0, 9.0)]
    assert Figure.of(case(target), runs).verdict == verdict


def test_an_error_that_is_no_number_is_wrong():
    assert Figure.of(case(1.0), [Run(1.0, 2.0, 2.0, float("nan"))]).verdict == "wrong"


def test_a_total_is_the_geometric_mean():
    figures = [
        Figure.of(Case(n, case(None).measure), [Run(1, r, r)]) for n, r in (("a", 4), ("b", 1))
    ]
    total = Total.of(figures, 2.5)
    assert (total.geomean, total.low, total.slowest, total.below) == (2.0, 1, "b", True)


def test_a_command_measures_one_case_in_its_process(capsys):
    command = Benchmark("nothing", "", lambda args: [case(None)])
    assert command.main(["--measure", "case"]) == 0
    assert json.loads(capsys.readouterr().out)["ratio"] == 2.0


def test_both_engines_compute_the_perceptron():
    ours, theirs, feeds = engines((8, 4, 3), 5)
    (name,) = ours.eval(feeds)
    np.testing.assert_allclose(ours.eval(feeds)[name], theirs.run(None, feeds)[0], rtol=1e-5)


def test_charts_are_documents():
    rows = [Bar("a < b", 0.04, 0.03, 0.05, 0.7), Bar("b", 9.0, 8.0, 10.0)]
    chart = parseString(bars("title", rows)).documentElement
    assert len(chart.getElementsByTagName("rect")) == 3
    drawn = lines("title", "x", "y", [Line("ours", [(1, 2), (512, 300)], "red")])
    assert parseString(drawn).documentElement.getElementsByTagName("polyline")


def test_the_page_is_written_from_results(tmp_path, monkeypatch):
    done = Figure.of(Case("mlp", case(None).measure, 1.0, facts={"batch": 8}), [Run(1e-6, 4e-6, 4)])
    failed = Figure("bad", 1.0, {}, "failed", failure="no kernel")
    for name in ("overhead", "real_models"):
        save(name, [done, failed], Total.of([done, failed], 1.25), tmp_path / f"{name}.json")
    monkeypatch.setattr(report, "PAGE", report.ROOT / "build" / "page.md")
    monkeypatch.setattr(report, "CHARTS", tmp_path)
    report.PAGE.parent.mkdir(exist_ok=True)
    assert report.main(["--folder", str(tmp_path)]) == 0
    text = report.PAGE.read_text()
    report.PAGE.unlink()
    assert "| mlp |  | 1 | 4 | 4.00 (4.00 to 4.00) | 1.00 | ok |" in text
    assert "failed: no kernel" in text
    assert "Geometric mean **4.00** (asked: 1.25)" in text
    assert (tmp_path / "real_models.svg").exists()
    assert (tmp_path / "batch.svg").exists()
