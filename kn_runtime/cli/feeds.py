"""Inputs of a model from files, or made up."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kn_graph.dtype import DType, Kind
from kn_graph.errors import InputShapeError, UsageError
from kn_graph.graph import Graph
from kn_graph.types import TensorType, ValueType
from kn_graph.value import Value
from kn_runtime.assume import assumed_sizes, concrete_shape
from kn_runtime.cli.common import named
from kn_runtime.images import IMAGE_SUFFIXES, ImageScaling, read_image

__all__ = ["Feeds", "add_arguments", "read_feeds"]

Array = np.ndarray[Any, Any]


class Feeds:
    """Values for the inputs of a model.

    Attributes:
        values: by input name.
        assumed: numbers chosen for symbolic sizes that nobody gave.
    """

    def __init__(self, values: dict[str, Any], assumed: dict[str, int]) -> None:
        self.values, self.assumed = values, assumed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--input` and what goes with it."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a .npy, .npz, .pb, .png or .jpg file for an input; NAME=random for seeded numbers; "
        "'random' alone for all inputs; an .npz alone fills inputs by name",
    )
    parser.add_argument("--seed", type=int, default=0, help="of random inputs and operators")
    parser.add_argument("--scale", type=float, help="factor for pixels (default 1/255 for floats)")
    parser.add_argument("--mean", type=_numbers, default=(0.0,), help="subtracted after scaling")
    parser.add_argument("--std", type=_numbers, default=(1.0,), help="divided by after that")


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def read_feeds(graph: Graph, args: argparse.Namespace, dims: Mapping[str, int]) -> Feeds:
    """Return the inputs that the arguments describe.

    Raises:
        UsageError: an argument is not understood.
        InputError: a file does not fit the model.
    """
    declared = {v.name: v for v in graph.inputs}
    random_all = "random" in args.input
    sources: dict[str, str] = {}
    values: dict[str, Any] = {}
    for text in args.input:
        if text == "random":
            continue
        if "=" not in text and text.endswith(".npz"):
            values |= _read_npz(Path(text))
            continue
        name, source = named(text, "--input")
        if name not in declared and name not in graph.overridable:
            known = ", ".join(map(repr, declared))
            raise UsageError(f"--input {name!r}: the model has no such input; it has {known}")
        sources[name] = source
    scaling = ImageScaling(args.scale, args.mean, args.std)
    made_up = [n for n, s in sources.items() if s == "random"]
    if random_all:
        made_up += [n for n in declared if n not in sources and n not in values]
    for name, source in sources.items():
        if source != "random":
            values[name] = _read(declared.get(name), name, Path(source), scaling)
    assumed = assumed_sizes(graph, dims, values) if made_up else {}
    rng = np.random.default_rng(args.seed)
    for v in graph.inputs:
        if v.name in made_up:
            values[v.name] = _random(v, {**dims, **assumed}, rng)
    return Feeds(values, assumed)


def _read(value: Value | None, name: str, path: Path, scaling: ImageScaling) -> Any:
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        if value is None or not isinstance(value.type, TensorType):
            raise UsageError(f"input {name!r} is no tensor, so it cannot be an image")
        return read_image(path, name, value.type, scaling)
    reader = _READERS.get(suffix)
    if reader is None:
        known = ", ".join([*_READERS, *IMAGE_SUFFIXES])
        raise UsageError(f"--input {name}: {path} has none of the suffixes {known}")
    return _guarded(path, lambda: reader(path, name))


def _guarded(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def _read_npy(path: Path, name: str) -> Array:
    array: Array = np.load(path, allow_pickle=False)
    return array


def _read_npz(path: Path) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        with np.load(path, allow_pickle=False) as archive:
            return {n: archive[n] for n in archive.files}

    found: dict[str, Any] = _guarded(path, read)
    return found


def _read_npz_member(path: Path, name: str) -> Array:
    members = _read_npz(path)
    if name in members:
        return members[name]  # type: ignore[no-any-return]
    if len(members) == 1:
        return next(iter(members.values()))  # type: ignore[no-any-return]
    raise UsageError(f"{path} has no array {name!r}; it has {', '.join(members)}")


def _read_proto(path: Path, name: str) -> Array:
    import onnx
    from google.protobuf.message import DecodeError

    from kn_graph.onnx.file import ModelFile
    from kn_graph.onnx.tensor import TensorReader

    proto = onnx.TensorProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError:
        raise UsageError(f"{path} is no ONNX TensorProto") from None
    holder = onnx.ModelProto(ir_version=8)
    holder.opset_import.add().version = 17
    return TensorReader(ModelFile(holder, str(path))).array(proto).array


_READERS: dict[str, Callable[[Path, str], Any]] = {
    ".npy": _read_npy,
    ".npz": _read_npz_member,
    ".pb": _read_proto,
}


def _random(v: Value, dims: Mapping[str, int], rng: np.random.Generator) -> Array:
    t: ValueType = v.type
    if not isinstance(t, TensorType):
        raise InputShapeError(f"input {v.name!r} of type {t} cannot be made up; give a file")
    shape = concrete_shape(t, dims)
    if t.dtype is DType.STRING:
        raise UsageError(f"input {v.name!r} holds strings and cannot be made up; give a file")
    if t.dtype.kind in (Kind.INT, Kind.UINT, Kind.BOOL):
        return rng.integers(0, 2, shape).astype(t.dtype.numpy)
    return rng.standard_normal(shape).astype(t.dtype.numpy)
