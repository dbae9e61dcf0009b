"""What all verbs have in common: JSON that is alone on stdout, and text that fits the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kn_cpu.native import library
from kn_runtime.cli.main import VERBS
from tests.cli.conftest import MODELS, Kn
from tests.small_models import info, model, node

LONG = "encoder/" + "/".join(f"block.{i}.some_long_name" for i in range(8))

CALLS: dict[str, tuple[str, ...]] = {
    "info": ("MODEL",),
    "run": ("MODEL", "--input", "random"),
    "bench": ("MODEL", "--seconds", "0.02", "--turns", "1", "--against", "none"),
    "profile": ("MODEL", "--runs", "1"),
    "compare": ("MODEL", "--input", "random"),
    "check": ("MODEL",),
    "plan": ("MODEL", "--check", "--ablate"),
    "optimize": ("MODEL", "--report"),
    "svg": ("MODEL", "-o", "FILE"),
    "devices": (),
    "doctor": (),
    "support": (),
    "completion": ("bash",),
}

NATIVE = ("profile",)


@pytest.fixture
def long_names(tmp_path: Path) -> Path:
    """Return a model whose names are longer than a terminal is wide."""
    weights = {f"{LONG}/weight": np.ones((16, 16), np.float32)}
    nodes = [
        node("MatMul", f"x {LONG}/weight", f"{LONG}/product", f"{LONG}/MatMul"),
        node("Softmax", f"{LONG}/product", f"{LONG}/y", f"{LONG}/Softmax"),
    ]
    path = tmp_path / "long.onnx"
    proto = model(
        nodes, [info("x", [f"{LONG}_batch".replace("/", "_"), 16])], [f"{LONG}/y"], weights
    )
    path.write_bytes(proto.SerializeToString())
    return path


def call(
    kn: Kn, verb: str, path: Path, folder: Path, *more: str, columns: int | None = None
) -> Any:
    if verb in NATIVE and library() is None:
        pytest.skip("there are no native kernels")
    words = {"MODEL": str(path), "FILE": str(folder / "out.svg")}
    return kn(verb, *(words.get(w, w) for w in CALLS[verb]), *more, columns=columns)


def test_every_verb_is_looked_at() -> None:
    assert CALLS.keys() == VERBS.keys()


@pytest.mark.parametrize("verb", CALLS)
def test_json_is_one_object_and_alone(verb: str, tmp_path: Path, kn: Kn) -> None:
    result = call(kn, verb, MODELS / "digits.onnx", tmp_path, "--json")
    assert result.code in (0, 1)
    assert isinstance(result.json(), dict)
    assert result.err == ""


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("verb", [v for v in CALLS if v != "completion"])
def test_lines_fit_the_terminal(
    verb: str, columns: int, long_names: Path, tmp_path: Path, kn: Kn
) -> None:
    result = call(kn, verb, long_names, tmp_path, columns=columns)
    assert result.code in (0, 1), result.err
    assert max(map(len, result.lines)) <= columns


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("verb", ["", *CALLS])
def test_help_fits_the_terminal(verb: str, columns: int, kn: Kn) -> None:
    lines = kn(*([verb] if verb else []), "--help", columns=columns).lines
    examples = [line for line in lines if line.startswith("  kn ")]
    assert max(len(line) for line in lines if line not in examples) <= columns
    assert max(map(len, examples), default=0) <= 100


def test_what_is_no_terminal_gets_every_column_in_one_row(
    long_names: Path, tmp_path: Path, kn: Kn
) -> None:
    lines = call(kn, "plan", long_names, tmp_path).lines
    assert any(f"{LONG}/MatMul" in line and "MatMul" in line for line in lines)
    assert not any("wider" in line for line in lines)


def test_a_doctor_tells_of_an_instruction_set_that_is_not_there() -> None:
    environ = {**os.environ, "KN_CPU_ISA": "vax"}
    command = [sys.executable, "-m", "kn_runtime", "doctor"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "unset KN_CPU_ISA" in done.stdout
