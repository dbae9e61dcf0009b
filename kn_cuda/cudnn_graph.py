"""Convolutions as graphs of cuDNN's frontend: for a device, or for one that is only described."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kn_cuda.conv_graph import Activation, ConvGraph
from kn_cuda.host_conv import Place, places
from kn_graph.dtype import DType

__all__ = ["CudnnConv", "cudnn_conv"]

TYPES: Mapping[DType, str] = {
    DType.FLOAT32: "FLOAT",
    DType.FLOAT16: "HALF",
    DType.BFLOAT16: "BFLOAT16",
}
"""Names in `cudnn.data_type`."""

FUNCTIONS: Mapping[Activation, str] = {
    "relu": "relu",
    "silu": "swish",
    "gelu": "gelu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}
"""Methods of a graph."""

ALWAYS_REFUSED = ("NONDETERMINISTIC",)
"""Notes of engines that are never taken."""

STRICT_REFUSED = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
"""Notes of engines that do not compute float32 in float32."""

NAMES = ("x", "w", "y", "bias", "residual")


@dataclass(frozen=True)
class CudnnConv:
    """A graph that cuDNN has built.

    Attributes:
        graph: what is executed.
        tensors: its tensors in the order of the pointers of a call; None for what is not there.
        workspace: bytes that it needs beside them.
        plans: how many engines were proposed.
    """

    graph: Any
    tensors: tuple[Any, ...]
    workspace: int
    plans: int

    def pack(self, pointers: Sequence[int]) -> dict[Any, int]:
        """Return the addresses of its tensors, as `execute` takes them."""
        pairs = zip(self.tensors, pointers, strict=True)
        return {tensor: address for tensor, address in pairs if tensor is not None}


def cudnn_conv(cudnn: Any, request: ConvGraph, numbers: Sequence[int], **device: Any) -> CudnnConv:
    """Have cuDNN build a graph.

    Args:
        cudnn: the frontend's module.
        request: what is asked.
        numbers: see `ConvGraph`.
        device: what `cudnn.pygraph` is told about the device.

    Raises:
        cudnn.cudnnGraphNotSupportedError: no engine computes it.
    """
    float32 = cudnn.data_type.FLOAT
    io = getattr(cudnn.data_type, TYPES[request.dtype])
    graph = cudnn.pygraph(
        io_data_type=io, intermediate_data_type=float32, compute_data_type=float32, **device
    )
    given = places(request, list(numbers))
    x, w, bias, residual = (
        _tensor(cudnn, graph, NAMES[i], given[i], request.rank) for i in (0, 1, 3, 4)
    )
    y = _convolved(graph, request, numbers, x, w, given[2])
    if request.bias:
        y = graph.bias(input=y, bias=bias)
    if request.residual:
        y = graph.add(a=y, b=residual)
    if request.activation != "none":
        y = getattr(graph, FUNCTIONS[request.activation])(input=y)
    _, sizes, strides = given[2]
    y.set_output(True).set_data_type(io).set_dim(list(sizes)).set_stride(list(strides))
    workspace, plans = _built(cudnn, graph, request)
    added = bias if request.bias else None, residual if request.residual else None
    return CudnnConv(graph, (x, w, y, *added), workspace, plans)


def _tensor(cudnn: Any, graph: Any, name: str, place: Place, rank: int) -> Any:
    dtype, sizes, strides = place
    if name == "bias":  # [1, M, 1, 1]
        sizes, strides = (1, *sizes, *(1,) * rank), (sizes[0], 1, *(1,) * rank)
    data_type = getattr(cudnn.data_type, TYPES[dtype])
    return graph.tensor(name=name, dim=list(sizes), stride=list(strides), data_type=data_type)


def _convolved(
    graph: Any, request: ConvGraph, numbers: Sequence[int], x: Any, w: Any, out: Place
) -> Any:
    *_, before, after = request.rows(list(numbers))
    window = {
        "pre_padding": before,
        "post_padding": after,
        "stride": list(request.strides),
        "dilation": list(request.dilations),
    }
    if not request.transposed:
        return graph.conv_fprop(image=x, weight=w, **window)
    y = graph.conv_dgrad(loss=x, filter=w, **window)
    return y.set_dim(list(out[1])).set_stride(list(out[2]))


def _built(cudnn: Any, graph: Any, request: ConvGraph) -> tuple[int, int]:
    """Choose an engine; returns the bytes of its workspace, and how many there were."""
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    refused: tuple[str, ...] = ALWAYS_REFUSED
    if request.dtype is DType.FLOAT32 and request.math == "fp32":
        refused += STRICT_REFUSED
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in refused])
    graph.check_support()
    graph.build_plans()
    return int(graph.get_workspace_size()), int(graph.get_execution_plan_count())
