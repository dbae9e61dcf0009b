"""The command that checks all models for a GPU that is described."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import check_all
from benchmarks.check_all import Row, check, main
from models.generate import model_bytes
from tests.small_models import info, model, node


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a model that is fine."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "residual_cnn.onnx").write_bytes(model_bytes("residual_cnn"))
    return tmp_path / "models"


def put(folder: Path, name: str, nodes: list[Any], inputs: list[Any]) -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(model(nodes, inputs).SerializeToString())
    return path


def test_a_row_says_what_a_gpu_would_do(folder: Path) -> None:
    row = check("residual_cnn", folder / "residual_cnn.onnx", "sm_90")
    assert (row.verdict, row.host, row.control, row.read_backs) == ("fine", 0, 0, 0)
    assert row.device > 0
    assert row.launches >= row.library_calls > 0
    assert row.kernels > 0
    assert bool(row.registers) != bool(row.skipped)
    assert 1 <= row.arena <= 1.15


def test_what_is_not_fine_is_named_and_what_is_not_asked_of_a_gpu_excepted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "broken", [node("NoSuchOperator", "x", "y")], [info("x", [2])])
    out = folder.parent / "out.json"
    arguments = ["--models", str(folder), "--json", str(out), "--markdown"]
    assert main(arguments) == 1
    assert "load: " in capsys.readouterr().out
    facts = json.loads(out.read_text())
    assert (facts["total"]["rows"], facts["total"]["fine"]) == (2, 1)
    assert main(["residual", *arguments]) == 0
    assert len(json.loads(out.read_text())["rows"]) == 2  # a part keeps the others


def test_operators_of_sequences_and_trees_are_excepted(folder: Path) -> None:
    nodes = [node("SequenceConstruct", "x", "s"), node("SequenceLength", "s", "y")]
    path = put(folder, "sequence", nodes, [info("x", [2, "n"])])
    assert check("sequence", path, "sm_90").excepted == "SequenceConstruct SequenceLength"
    assert Row("m", "sm_90", "TreeEnsembleClassifier", failure="plan: ...").verdict == "excepted"
    assert Row("m", "sm_90", failure="plan: why").verdict == "plan: why"


def test_a_command_that_was_interrupted_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(name: str, path: Path, arch: str, limit: float) -> Row:
        asked.append(arch)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return Row(name, arch)

    monkeypatch.setattr(check_all, "check", counted)
    arguments = ["--models", str(folder), "--json", str(folder / "out.json")]
    with pytest.raises(KeyboardInterrupt):
        main([*arguments, "--arch", "sm_75", "sm_90"])
    assert main([*arguments, "--arch", "sm_75", "sm_90"]) == 0
    assert asked == ["sm_75", "sm_90", "sm_90"]
    assert main([*arguments, "--arch", "sm_75", "--again"]) == 0
    assert asked[3:] == ["sm_75"]


def test_a_model_that_takes_too_long_is_named_as_such(folder: Path) -> None:
    row = check("residual_cnn", folder / "residual_cnn.onnx", "sm_90", limit=0.01)
    assert row.verdict == "longer than 0 s"
