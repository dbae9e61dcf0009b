"""`kn compare`: verdicts, where it begins, other runtimes, JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kn_graph.reference import cpu_eval_graph
from kn_runtime.cli import compare
from kn_runtime.oracle import ORACLES
from kn_runtime.prepared import PreparedGraph
from tests.cli.conftest import MODELS, Kn
from tests.small_models import info, model, node

W = np.random.default_rng(0).standard_normal((30, 20)).astype(np.float32)


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    """Return the file of a model with three nodes and two outputs."""
    nodes = [
        node("MatMul", "x w", "h", "fc"),
        node("Tanh", "h", "t", "act"),
        node("ReduceMax", "t", "y", "top", keepdims=0),
    ]
    proto = model(nodes, [info("x", ("n", 30))], ["t", "y"], {"w": W})
    (tmp_path / "mlp.onnx").write_bytes(proto.SerializeToString())
    return tmp_path / "mlp.onnx"


@pytest.fixture
def wrong_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break tanh by 1 % on the CPU."""

    def run(self: PreparedGraph, inputs: Any, dims: Any = None, *, seed: int = 0) -> dict[str, Any]:
        out = cpu_eval_graph(self.graph, inputs, dims, seed=seed)
        if self.device.kind == "cpu" and any(n.op.title == "tanh" for n in self.graph.nodes):
            out = {n: x * np.float32(1.01) for n, x in out.items()}
        return out

    monkeypatch.setattr(PreparedGraph, "eval", run)


def test_agreement(mlp: Path, kn: Kn) -> None:
    result = kn("compare", mlp, "--input", "random")
    assert (result.code, result.err) == (0, "")
    assert result.lines[0] == "reference, optimized: agrees"
    head = ["output", "type", "error/band", "outside", "worst", "at", "got,", "expected"]
    assert result.lines[1].split() == head[:4]  # the reference differs nowhere
    assert any(line.split() == head for line in result.lines)
    assert result.lines[2].split()[:4] == ["t", "float32[1,", "20]", "ok"]
    assert "cpu, optimized: agrees" in result.lines
    assert "assumed  n = 1" in result.lines


def test_disagreement(mlp: Path, wrong_tanh: None, kn: Kn) -> None:
    result = kn("compare", mlp, "--input", "random", "--no-optimize", "--dim", "n=4")
    assert result.code == 1
    assert "reference: agrees" in result.lines
    assert "cpu: differs" in result.lines
    assert any("80 of 80 (100.00%) outside of the band" in line for line in result.lines)
    assert any(line.strip().startswith("error / band  ") for line in result.lines)
    assert "first difference" not in result.out


def test_bisect_names_the_node(mlp: Path, wrong_tanh: None, kn: Kn) -> None:
    result = kn("compare", mlp, "--input", "random", "--bisect", "--devices", "cpu")
    assert result.code == 1
    assert any("first difference at node act (%" in line for line in result.lines)


def test_json(mlp: Path, wrong_tanh: None, kn: Kn) -> None:
    result = kn("compare", mlp, "--input", "random", "--bisect", "--json", "--no-optimize")
    facts = result.json()
    assert (result.code, facts["ok"]) == (1, False)
    reference, cpu = facts["subjects"]
    assert (reference["name"], reference["ok"], reference["optimized"]) == (
        "reference",
        True,
        False,
    )
    assert "first_difference" not in reference
    assert cpu["first_difference"]["node"] == "act"
    assert cpu["first_difference"]["inputs"] == {"in0": "float32[1, 20]"}
    outputs = cpu["outputs"]
    assert list(outputs) == ["t", "y"]
    assert outputs["t"]["worst"]["index"][0] == 0
    assert sum(outputs["t"]["histogram"].values()) == 20
    assert facts["assumed"] == {"n": 1}


@pytest.mark.parametrize("runtime", compare.AGAINST)
def test_another_runtime(runtime: str, mlp: Path, kn: Kn) -> None:
    result = kn("compare", mlp, "--input", "random", "--devices", "", "--against", runtime)
    assert result.code == 0, result.err
    assert result.lines[0] == f"{runtime}: agrees"


def test_the_runtimes_are_those_that_exist() -> None:
    assert tuple(ORACLES) == compare.AGAINST


def test_all_outputs_of_the_digits_model_agree_with_onnxruntime(kn: Kn) -> None:
    picture = f"image={MODELS / 'digit.png'}"
    arguments = (MODELS / "digits.onnx", "--input", picture, "--against", "onnxruntime")
    assert kn("compare", *arguments, "--json").json()["ok"]


def test_a_runtime_that_is_not_installed(
    mlp: Path, kn: Kn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('as if it were not there')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = kn("compare", mlp, "--input", "random", "--against", "onnxruntime")
    assert result.error(2, "usage") == "onnxruntime is not installed here: pip install onnxruntime"


@pytest.mark.parametrize(
    ("arguments", "code", "category", "text"),
    [
        (["--devices", ""], 2, "usage", "--devices names none"),
        (["--devices", "tpu"], 2, "usage", "unknown device 'tpu'"),
        (["--against", "tensorrt"], 2, "usage", "invalid choice: 'tensorrt'"),
        (["--devices", "cuda:99"], 3, "device_unavailable", "cuda:99"),
    ],
)
def test_bad_use(
    arguments: list[str], code: int, category: str, text: str, mlp: Path, kn: Kn
) -> None:
    result = kn("compare", mlp, "--input", "random", *arguments)
    assert text in result.error(code, category)
