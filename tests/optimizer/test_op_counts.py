"""The table of operation counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.op_counts import main, measure
from models.generate import model_bytes


def test_counts_of_a_generated_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "residual_cnn.onnx"
    path.write_bytes(model_bytes("residual_cnn"))
    row = measure("residual_cnn", path)
    assert row.before["Conv"] == row.after["Conv"] == 6
    assert row.after.total() < row.before.total()
    assert row.theirs is not None
    assert main(["resid", "--markdown", "--no-onnxruntime", "--models", str(tmp_path)]) == 0
    head, _, line = capsys.readouterr().out.splitlines()
    assert head == "| model | before | after | onnxruntime | what is left |"
    assert line.startswith(f"| residual_cnn | {row.before.total()} | {row.after.total()} | - |")


def test_a_file_that_does_not_load_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    assert main(["--no-onnxruntime", "--models", str(tmp_path)]) == 1
    assert "bad" in capsys.readouterr().err
