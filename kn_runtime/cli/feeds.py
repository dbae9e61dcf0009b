"""Inputs of a model from files, or made up."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kn_graph.dtype import DType, Kind
from kn_graph.errors import MissingInputError, OutOfMemoryError, UsageError
from kn_graph.graph import Graph
from kn_graph.memory import available_bytes
from kn_graph.types import OptionalType, TensorType
from kn_graph.value import Value
from kn_runtime.assume import assumed_sizes, concrete_shape, shown_sizes
from kn_runtime.cli.arguments import named
from kn_runtime.cli.input_files import read_input, read_npz
from kn_runtime.images import ImageScaling

__all__ = ["RANDOM", "Feeds", "add_arguments", "few", "read_feeds"]

RANDOM = "random"

MAX_NAMES = 4
"""Names of inputs that are printed."""


@dataclass(frozen=True)
class Feeds:
    """Values for the inputs of a model.

    Attributes:
        values: by input name.
        random: names of inputs that were made up.
        assumed: numbers chosen for symbolic sizes that nobody gave.
    """

    values: dict[str, Any]
    random: list[str]
    assumed: dict[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--input` and what goes with it."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a file for an input: .npy, .npz, .pb, a picture, .wav, or .txt with numbers or text; "
        "NAME=random for seeded numbers; 'random' alone for all other inputs; an .npz alone fills "
        "inputs by name",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of random inputs and operators"
    )
    pixels = parser.add_argument_group("pictures", "numbers are (pixel * scale - mean) / std")
    pixels.add_argument("--scale", type=float, metavar="X", help="default: 1/255 for floats")
    pixels.add_argument(
        "--mean", type=_numbers, default=(0.0,), metavar="X[,X,X]", help="one, or one a channel"
    )
    pixels.add_argument(
        "--std", type=_numbers, default=(1.0,), metavar="X[,X,X]", help="one, or one a channel"
    )


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected numbers such as 0.5,0.5,0.5, got {text!r}"
        ) from None


def read_feeds(graph: Graph, args: argparse.Namespace) -> Feeds:
    """Return the inputs that the arguments describe.

    Raises:
        UsageError: an argument is not understood, or a file cannot be read.
        InputError: an input is missing, or a file does not fit the model.
    """
    declared = {v.name: v for v in graph.inputs}
    scaling = ImageScaling(args.scale, args.mean, args.std)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for text in args.input:
        if "=" not in text and text.lower().endswith(".npz"):
            values |= read_npz(Path(text))
        elif text != RANDOM:
            name, source = named(text, "--input")
            if sources.setdefault(name, source) != source:
                raise UsageError(f"--input {name} is given twice: {sources[name]} and {source}")
    for name, source in sources.items():
        _check_known(graph, name, source)
        if source != RANDOM:
            values[name] = read_input(declared.get(name), name, Path(source), scaling)
    random = [n for n, s in sources.items() if s == RANDOM]
    missing = [v for v in graph.inputs if v.name not in values and v.name not in random]
    if RANDOM in args.input:
        random += [v.name for v in missing]
    else:
        _check_missing(graph, missing)
    shown = shown_sizes(graph, values)
    assumed = assumed_sizes(graph, shown) if random else {}
    generator = np.random.default_rng(args.seed)
    for v in graph.inputs:
        if v.name in random:
            values[v.name] = _made_up(v, {**shown, **assumed}, generator)
    return Feeds(values, random, assumed)


def few(names: Sequence[str]) -> str:
    """Return the first names of inputs as text, and how many more there are."""
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more inputs" if more > 0 else "")


def _check_known(graph: Graph, name: str, source: str) -> None:
    names = [v.name for v in graph.inputs]
    if name in graph.overridable and source == RANDOM:
        raise UsageError(f"--input {name}: it has a value in the model; give a file to replace it")
    if name not in names and name not in graph.overridable:
        known = ", ".join(map(repr, names)) or "none"
        raise UsageError(f"--input {name!r}: the model has no such input; its inputs are {known}")


def _check_missing(graph: Graph, missing: list[Value]) -> None:
    needed = [
        v for v in missing if v.name not in graph.defaults and not isinstance(v.type, OptionalType)
    ]
    if needed:
        texts = ", ".join(f"{v.name!r} ({v.type})" for v in needed)
        raise MissingInputError(
            f"the model needs {texts}: give --input NAME=FILE, or --input random to make them up",
            name=needed[0].name,
            expected=str(needed[0].type),
        )


def _made_up(
    v: Value, numbers: Mapping[str, int], generator: np.random.Generator
) -> np.ndarray[Any, Any]:
    """Return normal numbers for floats, 0 or 1 for integers and bools."""
    t = v.type
    if not isinstance(t, TensorType) or t.dtype is DType.STRING:
        raise UsageError(f"input {v.name!r} of type {t} cannot be made up; give a file")
    shape = concrete_shape(t, numbers)
    if (size := math.prod(shape) * max(t.dtype.itemsize, 8)) > (memory := available_bytes()):
        raise OutOfMemoryError(
            f"making up input {v.name!r}, {t.dtype}{list(shape)}, takes {size:,} bytes; "
            f"{memory:,} are available. Give smaller sizes with --dim"
        )
    if t.dtype.kind in (Kind.INT, Kind.UINT, Kind.BOOL):
        return generator.integers(0, 2, shape, np.uint8).astype(t.dtype.numpy)
    return np.asarray(generator.standard_normal(shape)).astype(t.dtype.numpy)
