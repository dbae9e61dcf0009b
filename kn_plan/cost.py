"""What a step costs, over symbolic sizes, and what a device needs for it at least.

The bytes are those that have to move: each element of an operand once, in whatever cache it may
lie. The time is a roofline: a device computes and moves at the same time, so that the slower of the
two is the bound. It is a lower bound to compare with, no prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kn_graph.dim import Size, Symbol, evaluate, size_prod, size_sum
from kn_graph.dtype import DType
from kn_graph.op import Op
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_graph.ops.cumulative import Cumulative
from kn_graph.ops.gather import Gather, GatherElements, GatherND
from kn_graph.ops.matmul import MatMul
from kn_graph.ops.norm import Norm, Softmax
from kn_graph.ops.pool import Pool
from kn_graph.ops.recurrent import CELLS, Recurrent
from kn_graph.ops.reduce import ArgReduce, Reduce
from kn_graph.types import Shape, TensorType
from kn_graph.value import Node
from kn_plan.device_spec import DeviceSpec
from kn_plan.plan import Operand, Plan, Step

__all__ = ["Bound", "Cost", "Limit", "plan_costs", "step_cost"]

Limit = Literal["compute", "memory", "launch", "nothing"]

SOFTMAX_FLOPS = 4
"""Of an element: difference, exponential, sum, quotient."""

NORM_FLOPS = 5
"""Of an element: sum, difference, square, its sum, product."""


@dataclass(frozen=True)
class Bound:
    """The least time of a step on a device.

    Attributes:
        seconds: how long it is.
        limit: what it is due to.
    """

    seconds: float
    limit: Limit


@dataclass(frozen=True)
class Cost:
    """Amounts of one step; sizes, or numbers once bound.

    Attributes:
        products: operations of convolutions and products; a multiplication and an addition are 2.
        scalars: all other operations; each primitive of a scalar program is 1.
        read: bytes.
        written: bytes.
        dtype: of the operands of the products.
    """

    products: Size
    scalars: Size
    read: Size
    written: Size
    dtype: DType | None

    @property
    def flops(self) -> Size:
        """All operations."""
        return self.products + self.scalars

    @property
    def moved(self) -> Size:
        """All bytes."""
        return self.read + self.written

    def at(self, env: Mapping[Symbol, int]) -> Cost:
        """Return the cost with numbers for symbols."""
        amounts = (self.products, self.scalars, self.read, self.written)
        products, scalars, read, written = (evaluate(n, env) for n in amounts)
        return Cost(products, scalars, read, written, self.dtype)

    def bound(self, spec: DeviceSpec) -> Bound:
        """Return the least time on a device, of a cost with numbers.

        Raises:
            UnboundSymbolError: a symbol has none.
        """
        amounts = (self.products, self.scalars, self.moved)
        products, scalars, moved = (evaluate(n, {}) for n in amounts)
        if not products and not scalars and not moved:
            return Bound(0.0, "nothing")
        parts: dict[Limit, float] = {
            "compute": products / spec.product_flops(self.dtype) + scalars / spec.flops,
            "memory": moved / spec.bandwidth,
            "launch": spec.launch,
        }
        limit = max(parts, key=parts.__getitem__)
        return Bound(parts[limit], limit)


def plan_costs(plan: Plan) -> list[Cost]:
    """Return the cost of each step."""
    return [step_cost(plan, step) for step in plan.steps]


def step_cost(plan: Plan, step: Step) -> Cost:
    """Return the cost of one step."""
    products: Size = 0
    scalars: Size = 0
    dtype: DType | None = None
    if step.node is not None:
        products, scalars = _node_flops(step.node)
        first = step.node.operands[0].type if step.node.operands else None
        dtype = first.dtype if isinstance(first, TensorType) else None
    if step.program is not None:
        scalars = scalars + step.program.flops.total() * size_prod(step.shape)
    read = size_sum(_read_bytes(plan, step))
    written = size_sum({o: _bytes(plan, o, _elements(o)) for o in step.writes}.values())
    return Cost(products, scalars, read, written, dtype)


# ---- bytes ----------------------------------------------------------------------------------


def _read_bytes(plan: Plan, step: Step) -> list[Size]:
    """Return the bytes of each operand; one that is read twice counts once."""
    once = dict.fromkeys(step.inputs)
    found = []
    for place, operand in enumerate(once):
        elements = _elements(operand)
        if place == 0 and isinstance(step.op, (Gather, GatherElements, GatherND)):
            elements = size_prod(step.shape)  # only what the indices name
        found.append(_bytes(plan, operand, elements))
    return found


def _elements(operand: Operand) -> Size:
    """Return how many different elements there are: repeated ones count once."""
    rows = zip(operand.layout.sizes, operand.layout.strides, strict=True)
    return size_prod([n for n, step in rows if step != 0])


def _bytes(plan: Plan, operand: Operand, elements: Size) -> Size:
    dtype = plan.buffers[operand.buffer].dtype
    return 0 if dtype is None else elements * dtype.numpy.itemsize


# ---- operations -----------------------------------------------------------------------------


def _shape(node: Node, operand: int) -> Shape:
    t = node.operands[operand].type
    return t.shape if isinstance(t, TensorType) else ()


def _numel(node: Node, operand: int = 0) -> Size:
    return size_prod(_shape(node, operand))


def _result(node: Node) -> Size:
    return size_prod(node.results[0].shape)


def _conv(node: Node, op: Conv) -> Size:
    return 2 * _result(node) * size_prod(_shape(node, 1)[1:])


def _conv_transpose(node: Node, op: ConvTranspose) -> Size:
    return 2 * _numel(node) * size_prod(_shape(node, 1)[1:])


def _matmul(node: Node, op: MatMul) -> Size:
    return 2 * _result(node) * _shape(node, 0)[-1]


def _attention(node: Node, op: Attention) -> Size:
    batch, heads, queries, depth = _shape(node, 0)
    keys, width = _shape(node, 2)[2:]
    return 2 * batch * heads * queries * keys * (depth + width)


def _recurrent(node: Node, op: Recurrent) -> Size:
    steps, batch, width = _shape(node, 0)
    directions = _shape(node, 1)[0]
    rows = CELLS[op.kind].gates * op.hidden_size
    return 2 * steps * batch * directions * rows * (width + op.hidden_size)


PRODUCTS: Mapping[type[Op], Callable[[Node, Any], Size]] = {
    Conv: _conv,
    ConvTranspose: _conv_transpose,
    MatMul: _matmul,
    Attention: _attention,
    Recurrent: _recurrent,
}
"""Multiplications and additions, counted apart, since devices have units for them."""

SCALARS: Mapping[type[Op], Callable[[Node, Any], Size]] = {
    Attention: lambda node, op: (
        SOFTMAX_FLOPS * size_prod((*_shape(node, 0)[:3], _shape(node, 1)[2]))
    ),
    ArgReduce: lambda node, op: _numel(node),
    Cumulative: lambda node, op: _numel(node),
    Norm: lambda node, op: NORM_FLOPS * _numel(node),
    Pool: lambda node, op: _result(node) * size_prod(op.kernel),
    Recurrent: lambda node, op: _result(node) * CELLS[op.kind].gates,
    Reduce: lambda node, op: _numel(node),
    Softmax: lambda node, op: SOFTMAX_FLOPS * _numel(node),
}
"""Other operations. What has no row moves elements, or runs on the host and is not counted."""


def _node_flops(node: Node) -> tuple[Size, Size]:
    counts = (table.get(type(node.op)) for table in (PRODUCTS, SCALARS))
    products, scalars = (0 if f is None else f(node, node.op) for f in counts)
    return products, scalars
