"""`kn plan`."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from kn_plan import check
from kn_plan.check import CheckReport
from kn_plan.options import PlanOptions
from kn_plan.plan import Plan
from models.generate import NAMES, model_bytes
from tests.cli.conftest import MODELS, Kn

DIGITS = MODELS / "digits.onnx"


def test_steps_memory_and_costs_are_printed(kn: Kn) -> None:
    result = kn("plan", DIGITS, "--dim", "batch=4")
    assert (result.code, result.err) == (0, "")
    head, first = result.lines[0].split(), result.lines[1].split()
    assert head[:4] == ["#", "node", "step", "computes"]
    assert first[:4] == ["0", "/conv1", "Conv", "+2"]
    text = dict(line.split(None, 1) for line in result.lines if " " in line)
    assert text["sizes"] == "batch = 4"
    assert "without reuse" in text["arena"]
    assert "assumed" not in text["sizes"]


def test_json_holds_what_the_text_shows_and_more(kn: Kn) -> None:
    facts = kn("plan", DIGITS, "--json").json()
    assert facts["assumed"] == facts["sizes"] == {"batch": 1}
    totals, memory = facts["totals"], facts["memory"]
    assert totals["steps"] == len(facts["steps"])
    assert totals["flops"] == sum(s["flops"] for s in facts["steps"])
    assert memory["lower_bound"] <= memory["arena"] < memory["without_reuse"]
    arena = [b for b in facts["buffers"] if b["home"] == "arena"]
    assert arena
    assert all(0 <= b["offset"] <= memory["arena"] - b["nbytes"] for b in arena)
    assert set(facts["outputs"]) == {"probabilities"}


def test_sizes_change_costs_and_not_the_steps(kn: Kn) -> None:
    one, four = (kn("plan", DIGITS, "--dim", f"batch={n}", "--json").json() for n in (1, 4))
    assert [s["writes"] for s in one["steps"]] == [s["writes"] for s in four["steps"]]
    assert four["totals"]["flops"] == 4 * one["totals"]["flops"]


def test_bodies_follow_the_step_that_runs_them_indented(kn: Kn, tmp_path: Path) -> None:
    path = tmp_path / "if_loop.onnx"
    path.write_bytes(model_bytes("if_loop"))
    facts = kn("plan", path, "--json").json()
    bodies = {b["path"]: b for b in facts["bodies"]}
    assert {"2.then_body", "2.else_body", "3.body", "3.body.2.then_body"} <= bodies.keys()
    assert all(b["report"]["steps"] for b in bodies.values())
    rows = [line.split() for line in kn("plan", path).lines]
    at = next(i for i, row in enumerate(rows) if row[:3] == ["2", "/If", "If"])
    assert rows[at + 1][:3] == ["then_body", "1", "step"]
    first = bodies["2.then_body"]["report"]["steps"][0]
    assert rows[at + 2][:2] == ["0", first["label"]]
    inside = sum(len(b["report"]["steps"]) for b in bodies.values())
    line = next(" ".join(row) for row in rows if row[0] == "bodies")
    assert line.startswith(f"bodies {len(bodies)} bodies with {inside} steps, 0 on the host")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cpu", "neutral", "cuda:sm_90"])
def test_plans_of_all_models_are_right(kn: Kn, tmp_path: Path, name: str, device: str) -> None:
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(model_bytes(name))
    result = kn("plan", path, "--device", device, "--check", "--json")
    assert result.code == 0, result.err
    assert result.json()["check"] == {"ok": True, "faults": []}


def test_a_wrong_plan_exits_with_1(kn: Kn, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = check.check_plan

    def broken(plan: Plan, dims: dict[str, int]) -> CheckReport:
        return honest(plan.with_steps(plan.steps[1:]), dims)

    monkeypatch.setattr(check, "check_plan", broken)
    result = kn("plan", DIGITS, "--check")
    assert result.code == 1
    assert "wrong  structure: " in result.out
    assert not kn("plan", DIGITS, "--check", "--json").json()["check"]["ok"]


def test_ablation_has_a_row_for_each_mechanism(kn: Kn) -> None:
    facts = kn("plan", DIGITS, "--ablate", "--json").json()
    assert list(facts["without"]) == [f.name for f in fields(PlanOptions)]
    fused, apart = facts["totals"], facts["without"]["fuse_epilogues"]["totals"]
    assert fused["steps"] < apart["steps"]
    assert fused["moved_bytes"] < apart["moved_bytes"]
    text = kn("plan", DIGITS, "--ablate").out
    assert all(f"without {f.name}" in text for f in fields(PlanOptions))


def test_raw_plans_the_file_as_it_is(kn: Kn) -> None:
    raw, optimized = (kn("plan", DIGITS, *a, "--json").json() for a in (("--raw",), ()))
    assert raw["totals"]["nodes"] >= optimized["totals"]["nodes"]


def test_text_is_the_plan(kn: Kn) -> None:
    lines = kn("plan", DIGITS, "--text").lines
    assert lines[0].startswith("plan of ")
    assert lines[-1].startswith("  output probabilities = b")


def test_the_host_steps_of_the_cpu_say_why(kn: Kn, tmp_path: Path) -> None:
    from kn_graph import Graph
    from kn_graph.onnx import save_graph_to_onnx_path

    g = Graph("sorted")
    g.output("y", g.nonzero(g.input("x", "float32", ["n"])))
    path = tmp_path / "nonzero.onnx"
    save_graph_to_onnx_path(g, path)
    facts = kn("plan", path, "--json").json()
    (step,) = [s for s in facts["steps"] if s["host"]]
    assert "shows when it has run" in step["host"]
    assert facts["totals"]["host_steps"] == 1
    assert f"host: {step['host']}" in kn("plan", path).out
    assert kn("plan", path, "--device", "neutral", "--json").json()["totals"]["host_steps"] == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--device", "cuda:0"), "a GPU is described by its architecture, such as cuda:sm_90"),
        (("--device", "gpu"), "unknown device 'gpu'; expected cpu, neutral or cuda:ARCH"),
        (("--dim", "batch"), "--dim is given as NAME=VALUE"),
    ],
)
def test_wrong_use_is_one_line(kn: Kn, arguments: tuple[str, ...], text: str) -> None:
    assert text in kn("plan", DIGITS, *arguments).error(2, "usage")


def test_bounds_are_of_the_device(kn: Kn) -> None:
    gpu = kn("plan", DIGITS, "--device", "cuda:sm_90", "--json").json()
    assert gpu["device"] == "sm_90 (H100 SXM)"
    shown = kn("plan", DIGITS, "--device", "cuda:sm_90").out
    assert "a device that is described, not asked" in shown
    assert gpu["options"] == vars(PlanOptions())


def test_the_page_on_planning_shows_what_is_printed(kn: Kn, tmp_path: Path) -> None:
    page = (MODELS.parent / "docs" / "planning.md").read_text()
    path = tmp_path / "transformer_layer.onnx"
    path.write_bytes(model_bytes("transformer_layer"))
    result = kn("plan", path, "--dim", "batch=1", "--dim", "seq=128", "--ablate")
    shown = page.split("--check --ablate\n")[1].split("```")[0]

    def rows(text: str) -> list[str]:
        """Return what does not depend on the machine: steps without bounds, and the ablation."""
        cells = [re.split(r"  +", line.strip()) for line in text.splitlines()]
        return [" | ".join(c[:-2] if c[0].isdigit() else c[:-1]) for c in cells if len(c) >= 6]

    assert rows(shown) == rows(result.out)
    assert len(rows(shown)) == 1 + 8 + 1 + 1 + len(fields(PlanOptions))
