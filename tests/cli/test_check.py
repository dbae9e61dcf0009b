"""`kn check`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kn_graph import Graph
from kn_graph.onnx import save_graph_to_onnx_path
from kn_plan import check
from kn_plan.check import CheckReport
from kn_plan.plan import Plan
from models.generate import NAMES, model_bytes
from tests.cli.conftest import MODELS, Kn
from tests.small_models import model, node

DIGITS = MODELS / "digits.onnx"
STAGES = ["load", "optimize", "sizes", "plan", "verify", "memory"]


def generated(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(model_bytes(name))
    return path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cpu", "neutral", "cuda:sm_90"])
def test_the_models_of_the_repository_are_fine(
    name: str, device: str, tmp_path: Path, kn: Kn
) -> None:
    facts = kn("check", generated(name, tmp_path), "--device", device, "--json").json()
    assert facts["ok"]
    of_the_device = ["kernels", "arena", "cudnn"] if device.startswith("cuda") else []
    assert [c["check"] for c in facts["checks"]] == STAGES + of_the_device
    assert sum(k["count"] for k in facts["kinds"]) == sum(facts["steps"].values())


def test_what_is_printed(kn: Kn) -> None:
    result = kn("check", DIGITS, columns=80)
    assert (result.code, result.err) == (0, "")
    assert [line.split()[:2] for line in result.lines[:3]] == [[s, "ok"] for s in STAGES[:3]]
    assert "8 steps: 8 device, 0 control, 0 host" in result.out
    assert result.lines[-1].endswith("is fine on cpu")
    assert max(map(len, result.lines)) <= 80


def test_steps_of_bodies_count(tmp_path: Path, kn: Kn) -> None:
    facts = kn("check", generated("if_loop", tmp_path), "--json").json()
    plan = kn("plan", generated("if_loop", tmp_path), "--json").json()
    inside = sum(len(b["report"]["steps"]) for b in plan["bodies"])
    assert sum(facts["steps"].values()) == len(plan["steps"]) + inside
    assert facts["steps"]["control"] == 4


def unsupported(folder: Path) -> Path:
    path = folder / "model.onnx"
    proto = model([node("NoSuchOperator", "x", "y", "first")])
    path.write_bytes(proto.SerializeToString())
    return path


def test_the_first_check_that_fails_is_the_last(tmp_path: Path, kn: Kn) -> None:
    result = kn("check", unsupported(tmp_path), "--json")
    assert result.code == 1
    (finding,) = result.json()["checks"]
    assert (finding["check"], finding["ok"]) == ("load", False)
    assert finding["category"] == "unsupported_operator"
    assert "NoSuchOperator" in finding["text"]
    shown = kn("check", unsupported(tmp_path))
    assert (shown.code, shown.err) == (1, "")
    assert shown.lines[-1].endswith("is not fine on cpu")


def test_a_file_that_is_no_model_is_not_fine(tmp_path: Path, kn: Kn) -> None:
    (tmp_path / "text.onnx").write_text("hello")
    assert kn("check", tmp_path / "text.onnx").code == 1


@pytest.mark.parametrize("body", [False, True])
def test_a_wrong_plan_is_not_fine(
    body: bool, tmp_path: Path, kn: Kn, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = check.check_plan

    def broken(plan: Plan, dims: object = None, **options: object) -> CheckReport:
        wrong = (plan.graph.parent is not None) == body
        plan = plan.with_steps(plan.steps[1:]) if wrong else plan
        return honest(plan, dims, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(check, "check_plan", broken)
    result = kn("check", generated("if_loop", tmp_path), "--json")
    assert result.code == 1
    last = result.json()["checks"][-1]
    assert (last["check"], last["ok"]) == ("verify", False)
    assert ("_body of" in last["text"] or "body of" in last["text"]) == body


def test_steps_of_the_host_are_counted_and_may_be_refused(tmp_path: Path, kn: Kn) -> None:
    g = Graph("found")
    g.output("y", g.nonzero(g.input("x", "float32", ["n"])))
    save_graph_to_onnx_path(g, tmp_path / "nonzero.onnx")
    facts = kn("check", tmp_path / "nonzero.onnx", "--json").json()
    assert (facts["ok"], facts["steps"]["host"]) == (True, 1)
    assert facts["kinds"][0]["on"] == "host"
    assert "shows when it has run" in facts["kinds"][0]["why"]
    refused = kn("check", tmp_path / "nonzero.onnx", "--no-host", "--json")
    assert refused.code == 1
    assert refused.json()["checks"][-1]["category"] == "unsupported_on_device"


def test_a_gpu_is_described_by_its_architecture(tmp_path: Path, kn: Kn) -> None:
    facts = kn("check", DIGITS, "--arch", "sm_90", "--json").json()
    assert (facts["ok"], facts["device"]) == (True, "cuda:sm_90")
    assert facts["steps"] == {"device": 8, "control": 0, "host": 0}
    texts = {c["check"]: c["text"] for c in facts["checks"]}
    assert re.match(r"\d+ launches, \d+ by libraries, 0 sizes read back; ", texts["kernels"])
    assert texts["cudnn"].endswith("see --cudnn")


def test_an_arena_far_above_its_bound_is_not_fine(kn: Kn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kn_runtime.cli.check.MOST_ARENA", 0.5)
    result = kn("check", DIGITS, "--arch", "sm_90", "--json")
    assert result.code == 1
    last = result.json()["checks"][-1]
    assert (last["check"], last["ok"]) == ("arena", False)
    assert "live at once" in last["text"]


@pytest.mark.parametrize(
    ("arguments", "category", "text"),
    [
        (("absent.onnx",), "usage", "there is no file absent.onnx"),
        ((DIGITS, "--dim", "n=1"), "bad_size", "no symbolic size 'n'"),
        ((DIGITS, "--device", "gpu"), "usage", "unknown device 'gpu'"),
    ],
)
def test_wrong_use_is_no_answer(
    arguments: tuple[str, ...], category: str, text: str, kn: Kn
) -> None:
    assert text in kn("check", *arguments).error(2, category)
