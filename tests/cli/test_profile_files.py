"""The files of `kn profile`: a page, a timeline, a picture of the memory."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from kn_cpu.executor import CpuExecutor
from kn_cpu.native import library
from kn_cpu.peak import MachinePeak
from kn_cpu.profile import BodyProfile, Profile, profile
from kn_graph import Graph, load_graph_from_onnx_bytes, optimize_graph
from kn_plan.device_spec import cpu_spec
from kn_plan.planner import plan_graph
from kn_plan.report import plan_report
from kn_plan.step_profile import StepProfile
from kn_plan.target import NeutralTarget
from kn_runtime.cli.flame import blocks_of, flame_text
from kn_runtime.cli.memory_plot import memory_svg
from kn_runtime.cli.trace import placed_steps, trace_text
from models.generate import inputs, model_bytes
from tests.cli.conftest import MODELS, Kn

pytestmark = pytest.mark.skipif(library() is None, reason="there are no native kernels")

PEAK = MachinePeak("test", 1e11, ((1 << 30, 1e10),))


def step(number: int, label: str, time_us: float, kind: str = "Conv") -> StepProfile:
    return StepProfile(number, label, kind, 0, [2, 3], ["conv.conv_f32"], time_us, 0.0, 1, 1, 0.1,
                       0.5, "compute", None)  # fmt: skip


LOOP = Profile(
    {}, 1, 3, 12.0, 10.0, 1.0, PEAK,
    [step(0, "/a/one", 2.0), step(1, "/b/loop", 8.0, "Loop")],
    [
        BodyProfile(
            "1.body", 1, "body", 4, 16.0, [step(0, "/b/x", 4.0), step(1, "/b/if", 12.0, "If")]
        ),
        BodyProfile("1.body.1.then_body", 1, "then_body", 3, 3.0, [step(0, "/b/y", 3.0)]),
        BodyProfile("1.body.1.else_body", 1, "else_body", 0, 0.0, []),
    ],
)  # fmt: skip
"""A loop that took 8 us in all, and 16 us where its steps were timed by themselves."""


def test_the_timeline_has_steps_behind_one_another_and_bodies_inside() -> None:
    placed = [(d, start, length, s.label) for d, start, length, s in placed_steps(LOOP)]
    assert placed == [
        (0, 0.0, 2.0, "/a/one"),
        (0, 2.0, 8.0, "/b/loop"),
        (1, 2.0, 2.0, "/b/x"),
        (1, 4.0, 6.0, "/b/if"),
        (2, 4.0, 1.5, "/b/y"),
    ]


def test_the_timeline_is_what_viewers_read() -> None:
    found = json.loads(trace_text(LOOP, "model.onnx"))
    events = found["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X"}
    boxes = [e for e in events if e["ph"] == "X"]
    assert boxes[0]["name"] == "call"
    assert boxes[0]["dur"] == 12.0
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(rows.values()) == ["whole call", "steps", "bodies 1", "bodies 2"]
    assert {e["tid"] for e in boxes} == rows.keys()
    inner = next(e for e in boxes if e["name"] == "/b/x")
    assert (inner["dur"], inner["args"]["us"]) == (2.0, 4.0)


def test_blocks_are_as_wide_as_what_they_hold() -> None:
    root = blocks_of(LOOP, "model")
    assert root.time_us == 10.0
    assert {name: b.time_us for name, b in root.inner.items()} == {"a": 2.0, "b": 8.0}
    loop = root.inner["b"].inner["loop #1"]
    body = loop.inner["body"]
    assert (loop.time_us, body.time_us) == (8.0, 8.0)
    (branch,) = body.inner["b"].inner["if #1"].inner.values()
    assert (branch.name, branch.time_us) == ("then_body", 3.0)


def test_the_page_needs_no_other_and_no_name_breaks_it() -> None:
    hostile = replace(LOOP, steps=[step(0, "</script><b>", 1.0)], bodies=[])
    page = flame_text(hostile, "</title>")
    assert page.count("</script>") == 1
    assert "<b>" not in page
    assert not re.search(r"(src|href)=|https?:|url\(", page)
    data = json.loads(re.findall(r"const data = (.*);\n", page)[0])
    assert data["root"]["c"][0]["c"][0]["n"] == "script><b>"


def test_deep_names_are_no_trouble() -> None:
    deep = replace(LOOP, steps=[step(0, "/".join("x" * 5000), 1.0)], bodies=[])
    assert blocks_of(deep, "deep").time_us == 1.0


def memory_of(graph: Graph) -> tuple[Any, str]:
    plan = plan_graph(graph.seal(), NeutralTarget())
    report = plan_report(plan, {}, cpu_spec("base", 1))
    times = [1.0 + s.number for s in report.steps]
    return report, memory_svg(report, times, "a & b")


def chain() -> Graph:
    g = Graph("chain")
    x = g.input("x", "float32", [64, 64])
    for _ in range(4):
        x = g.softmax(g.matmul(x, g.permute(x, [1, 0])), 1)
    g.output("y", x)
    return g


def test_the_picture_has_a_box_for_each_buffer_of_the_arena() -> None:
    report, text = memory_of(chain())
    root = ElementTree.fromstring(text)
    boxes = [e for e in root.iter() if e.get("class") == "b"]
    assert len(boxes) == sum(b.home == "arena" for b in report.buffers)
    assert len(boxes) >= 5
    lefts = [float(e.get("x", "")) for e in boxes]
    assert lefts == sorted(lefts)
    titles = [e[0].text or "" for e in boxes]
    assert all("16.0 KiB, from" in t for t in titles)


def test_what_lives_reaches_the_lower_bound_and_no_higher() -> None:
    _, text = memory_of(chain())
    live = re.findall(r'class="live" d="([^"]*)"', text)[0]
    highest = min(float(y) for y in re.findall(r"V([\d.]+)", live))
    bound = float(re.findall(r'class="bound" d="M[\d.]+ ([\d.]+)H', text)[0])
    assert highest == pytest.approx(bound, abs=0.06)


def test_a_graph_without_an_arena_has_a_picture() -> None:
    g = Graph("one")
    g.output("y", g.unary("neg", g.input("x", "float32", [4])))
    ElementTree.fromstring(memory_of(g)[1])


@pytest.mark.parametrize("name", ["if_loop", "transformer_layer"])
def test_files_of_real_profiles(name: str, tmp_path: Path, kn: Kn) -> None:
    model = tmp_path / f"{name}.onnx"
    model.write_bytes(model_bytes(name))
    files = [tmp_path / f"out.{suffix}" for suffix in ("html", "json", "svg")]
    options = zip(("--html", "--trace", "--memory"), files, strict=True)
    given = [str(x) for option in options for x in option]
    facts = kn("profile", model, "--runs", "2", "--json", *given).json()
    assert facts["written"] == [str(f) for f in files]
    boxes = [e for e in json.loads(files[1].read_text())["traceEvents"] if e["ph"] == "X"]
    steps = sum(len(b["steps"]) for b in facts["bodies"]) + len(facts["steps"])
    assert len(boxes) == steps + 1
    ElementTree.fromstring(files[2].read_text())


def test_sizes_that_show_at_run_time_are_those_of_the_run(tmp_path: Path, kn: Kn) -> None:
    from kn_graph.onnx import save_graph_to_onnx_path

    g = Graph("found")
    x = g.input("x", "float32", ["n"])
    g.output("y", g.unary("neg", g.unary("exp", g.gather(x, g.nonzero(x), 0))))
    save_graph_to_onnx_path(g, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float32))
    given = ("--input", f"x={tmp_path / 'x.npy'}", "--memory", tmp_path / "m.svg")
    assert kn("profile", tmp_path / "m.onnx", *given).code == 0


def test_a_file_that_cannot_be_written(kn: Kn, tmp_path: Path) -> None:
    text = kn("profile", MODELS / "digits.onnx", "--runs", "1", "--html", tmp_path / "no" / "x")
    assert "cannot be written: No such file or directory" in text.error(2, "usage")


def test_times_of_a_real_body_fit_into_its_step() -> None:
    kernels = library()
    assert kernels is not None
    graph = optimize_graph(load_graph_from_onnx_bytes(model_bytes("if_loop")))
    found = profile(CpuExecutor(graph, kernels, 1), inputs("if_loop"), PEAK, runs=2)
    placed = list(placed_steps(found))
    outer = {s.number: (start, start + length) for d, start, length, s in placed if d == 0}
    end = max(stop for _, stop in outer.values())
    assert end == pytest.approx(found.steps_us, rel=1e-3)
    for depth, start, length, _ in placed:
        if depth == 1:
            assert any(a - 1e-6 <= start and start + length <= b + 1e-6 for a, b in outer.values())
