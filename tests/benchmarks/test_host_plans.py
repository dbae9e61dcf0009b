"""The command that runs whole plans on the host in place of a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.host_plans import Case, main, measure
from kn_cuda.host import host_compiler
from kn_graph import Graph
from kn_graph.compare import Band, model_band
from models.generate import inputs, model_bytes

pytestmark = pytest.mark.skipif(host_compiler() is None, reason="no C++ compiler is found")


def written(folder: Path, name: str) -> Path:
    """Write a generated model with a recording of its inputs."""
    path = folder / f"{name}.onnx"
    path.write_bytes(model_bytes(name))
    recorded: dict[str, Any] = {f"in:{n}": x for n, x in inputs(name).items()}
    np.savez(path.with_suffix(".npz"), **recorded)
    return path


def test_a_model_runs_in_both_orders_and_is_written_down(tmp_path: Path) -> None:
    path, out = written(tmp_path, "residual_cnn"), tmp_path / "out.json"
    assert main(["--files", str(path), "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert row["name"] == "residual_cnn"
    assert row["failure"] == ""
    assert row["same_bytes"]
    assert row["launches"] > 0
    assert 0 <= row["part"] <= 1


def test_a_model_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--files", str(tmp_path / "gone.onnx"), "--markdown"]) == 1
    assert "No such file" in capsys.readouterr().out


def test_other_results_are_no_agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "residual_cnn")
    case = Case("residual_cnn", lambda: (path, inputs("residual_cnn")))

    def shifted(graph: Graph, feeds: Any, samples: int | None) -> Band:
        band = model_band(graph, feeds, samples=samples)
        return replace(band, expected={n: x + 0.01 for n, x in band.expected.items()})

    monkeypatch.setattr("benchmarks.host_plans.model_band", shifted)
    assert "differs" in measure(case).failure
