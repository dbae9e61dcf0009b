"""Running `kn` in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kn_runtime.cli import main

MODELS = Path(__file__).parents[2] / "models"


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines of the output that are not empty."""
        return [line for line in self.out.splitlines() if line.strip()]

    def json(self) -> Any:
        """Return the object on stdout, which holds nothing else."""

        def refuse(text: str) -> None:
            raise AssertionError(f"{text} is no JSON")

        return json.loads(self.out, parse_constant=refuse)

    def error(self, code: int, category: str) -> str:
        """Return the text of the one error, after checking what every error has."""
        assert (self.code, self.out) == (code, "")
        assert self.err.count("\n") == 1
        head = f"error[{category}]: "
        assert self.err.startswith(head), self.err
        return self.err.removeprefix(head).strip()


Kn = Callable[..., Result]


@pytest.fixture
def kn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Kn:
    """Return a function that runs `kn` with arguments and returns what it printed."""

    def run(*arguments: str | Path, columns: int | None = None) -> Result:
        if columns is None:
            monkeypatch.delenv("COLUMNS", raising=False)
        else:
            monkeypatch.setenv("COLUMNS", str(columns))
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def digits() -> Sequence[str]:
    """Return the arguments of `make run`, after `kn run`."""
    picture, labels = f"image={MODELS / 'digit.png'}", str(MODELS / "digits.txt")
    return (str(MODELS / "digits.onnx"), "--input", picture, "--labels", labels)


__all__ = ["MODELS", "Kn", "Result", "digits", "kn"]
