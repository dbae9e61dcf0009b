"""`kn svg`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import MODELS, Kn

DIGITS = MODELS / "digits.onnx"


@pytest.mark.parametrize("kind", ["dot", "mermaid"])
def test_text_formats_go_to_stdout(kind: str, kn: Kn) -> None:
    result = kn("svg", DIGITS, "--format", kind, "--optimized")
    assert (result.code, result.err) == (0, "")
    assert "Conv" in result.out


def test_a_file_is_written_and_counted(kn: Kn, tmp_path: Path) -> None:
    file = tmp_path / "d.svg"
    facts = kn("svg", DIGITS, "-o", file, "--json").json()
    assert facts["file"] == str(file)
    assert facts["boxes"] > 10
    assert facts["pictures"] >= 1
    assert file.read_text().startswith("<svg")
    assert kn("svg", DIGITS, "-o", file).out == (
        f"{file}: {facts['boxes']} boxes, {facts['arrows']} arrows, {facts['pictures']} pictures\n"
    )


def test_options_reach_the_picture(kn: Kn, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", probabilities=np.array([0.25, 0.5], np.float32))
    text = kn("svg", DIGITS, "--format", "dot", "--values", tmp_path / "v.npz", "--show-ids").out
    assert "0.25 .. 0.5" in text
    assert "%" in text
    near = kn("svg", DIGITS, "--format", "mermaid", "--around", "probabilities", "--distance", "1")
    assert "Conv" not in near.out
    hidden = kn("svg", DIGITS, "--format", "mermaid", "--hide-const").out
    assert "f32 8×1×3×3" not in hidden


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "-o model.svg"),
        (["-o", "absent/x.svg"], "absent/x.svg cannot be written"),
        (["--format", "dot", "--around", "nothing"], "no value 'nothing'"),
        (["--format", "dot", "--values", "absent.npz"], "absent.npz cannot be read"),
        (["--format", "dot", "--distance", "-1"], "--distance"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], says: str, kn: Kn) -> None:
    assert says in kn("svg", DIGITS, *arguments).error(2, "usage")
