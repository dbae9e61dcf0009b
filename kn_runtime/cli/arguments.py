"""Arguments that several verbs have, and what they mean."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from kn_graph.errors import UsageError

__all__ = [
    "DEFAULT_RUNS",
    "add_device",
    "add_dims",
    "add_model",
    "add_plan_device",
    "add_runs",
    "add_threads",
    "dims_of",
    "named",
    "positive",
    "write_text",
]

DEFAULT_RUNS = 20

PLAN_DEVICES = "cpu, neutral or cuda:ARCH, such as cuda:sm_90"


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the model."""
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add `--device`, which runs."""
    parser.add_argument(
        "--device",
        default="best",
        metavar="NAME",
        help="best, reference, cpu, cuda or cuda:N (default: best)",
    )


def add_plan_device(parser: argparse.ArgumentParser) -> None:
    """Add `--device`, for which a plan is made; it need not be there."""
    parser.add_argument(
        "--device", default="cpu", metavar="NAME", help=f"{PLAN_DEVICES} (default: cpu)"
    )


def add_dims(parser: argparse.ArgumentParser) -> None:
    """Add `--dim`."""
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=N",
        help="a number for a symbolic size; may be repeated",
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add `--threads`."""
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="how many work (default: all there are)"
    )


def add_runs(parser: argparse.ArgumentParser, default: int = DEFAULT_RUNS) -> None:
    """Add `--runs`."""
    parser.add_argument(
        "--runs",
        type=positive,
        default=default,
        metavar="N",
        help=f"medians are over N runs (default: {default})",
    )


def positive(text: str) -> int:
    """Return a whole number of 1 or more: the type of an argument.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, got {text!r}")
    return int(text)


def named(text: str, what: str) -> tuple[str, str]:
    """Split `NAME=VALUE`.

    Raises:
        UsageError: there is no `=`.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{what} is given as NAME=VALUE, got {text!r}")
    return name, value


def dims_of(args: argparse.Namespace) -> dict[str, int]:
    """Return the sizes given by `--dim`.

    Raises:
        UsageError: one is not NAME=N with N >= 0, or is given twice.
    """
    dims: dict[str, int] = {}
    for text in args.dim:
        name, value = named(text, "--dim")
        if not (value.isascii() and value.isdigit() and len(value) <= 18):
            raise UsageError(f"--dim {name}: expected a whole number of 0 or more, got {value!r}")
        if dims.setdefault(name, int(value)) != int(value):
            raise UsageError(f"--dim {name} is given twice: {dims[name]} and {value}")
    return dims


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file that an argument names.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
