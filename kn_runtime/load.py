"""From a file to a prepared graph in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, BinaryIO, Literal

from kn_graph.garbage import uncollected
from kn_runtime.device import Device
from kn_runtime.options import PrepareOptions
from kn_runtime.prepared import PreparedGraph

if TYPE_CHECKING:
    import onnx

__all__ = ["Recipe", "load"]


@dataclass(frozen=True)
class Recipe:
    """How a prepared graph was loaded; the attributes are the arguments of `load`."""

    source: str
    device: str
    dims: Mapping[str, int] | None
    input_shapes: Mapping[str, Sequence[int | str | None]] | None
    external_data: bool | Literal["dummy"]
    optimize: bool
    options: PrepareOptions | None

    def load(self) -> PreparedGraph:
        """Load it again."""
        others = {f.name: getattr(self, f.name) for f in fields(self)[1:]}
        return load(self.source, **others)


@uncollected
def load(
    source: str | os.PathLike[str] | bytes | BinaryIO | onnx.ModelProto,
    device: str | Device = "best",
    *,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    external_data: bool | Literal["dummy"] = True,
    optimize: bool = True,
    options: PrepareOptions | None = None,
) -> PreparedGraph:
    """Load an ONNX model and make it ready to run.

    Args:
        source: a path, the bytes of a file, a binary file object, or a ModelProto.
        device: where to run: a `Device`, or best, reference, cpu, cuda, cuda:N.
        dims: numbers for symbolic sizes, by name.
        input_shapes: shapes of inputs instead of those declared, by name.
        external_data: see `kn_graph.load_graph_from_onnx_path`.
        optimize: improve the graph first.
        options: see `PrepareOptions`.

    Raises:
        ModelError: the file cannot be used.
        DeviceError: the device cannot be used.
    """
    from kn_graph.onnx import load_graph

    chosen = Device.parse(device) if isinstance(device, str) else device
    graph = load_graph(source, input_shapes=input_shapes, dims=dims, external_data=external_data)
    prepared = chosen.prepare(graph, optimize=optimize, options=options)
    if isinstance(source, (str, os.PathLike)):
        prepared.recipe = Recipe(
            os.path.abspath(os.fspath(source)), str(chosen), dims, input_shapes, external_data,
            optimize, options,
        )  # fmt: skip
    return prepared
