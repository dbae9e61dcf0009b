"""Activations that are x times a gate: x * sigmoid(x), x / 2 * (1 + erf(x / sqrt(2))) and so on.

With g the gate function, each is `outer(x, g(inner(x)))` for two polynomials, in whatever order and
association the exporter wrote them:

| rule       | gate              | inner                              | outer         |
|------------|-------------------|------------------------------------|---------------|
| gelu       | erf               | x / sqrt(2)                        | x/2 + x*g/2   |
| gelu_tanh  | tanh              | sqrt(2/pi) * (x + 0.044715 x^3)    | x/2 + x*g/2   |
|            | sigmoid           | twice that                         | x*g           |
| silu       | sigmoid           | x                                  | x*g           |
| swish      | sigmoid           | alpha*x (quick_gelu: 1.702 x)      | x*g           |
| hard_swish | hard_sigmoid      | x, with alpha 1/6 and beta 1/2     | x*g           |
|            | clip to 0..6      | x + 3                              | x*g/6         |
| mish       | tanh              | softplus(x)                        | x*g           |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary, Unary
from kn_graph.optimizer.clamps import clamp_at
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import FLOATS, Polynomial, close, function, polynomial
from kn_graph.optimizer.rule import SHARED, Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "Gelu", "GeluTanh", "HardSwish", "Mish", "Silu", "Swish"]

DEPTH = 4
"""How many products and sums may lie between the result and the gate."""

X, XG = (1, 0), (1, 1)
GATED: Mapping[tuple[int, ...], float] = {XG: 1.0}
HALF_PLUS_HALF_GATED: Mapping[tuple[int, ...], float] = {X: 0.5, XG: 0.5}

TANH_SCALE = math.sqrt(2 / math.pi)
CUBIC = 0.044715


@dataclass(frozen=True)
class Found:
    """What an activation is applied to, and its parameters."""

    x: Value
    params: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Gate:
    """A gate function's result, the operand of the function, and the nodes that compute it."""

    result: Value
    operand: Value
    nodes: tuple[Node, ...]


class GatedRule(Rule[Found]):
    """A rule of the module's table."""

    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    functions = frozenset({"mul", "div"})
    setting = "fuse_activation"
    gates: ClassVar[frozenset[str]]
    """Scalar functions that are the gate, or whose result it is."""

    row: ClassVar[str]
    """The row of the scalar table that comes out."""

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Find the gate, then the x for which both polynomials are right."""
        assert isinstance(node.op, Binary)
        root = node.results[0]
        if node.op.fn not in ("mul", "div") or root.dtype not in FLOATS:
            return None
        gate_values, others = _factors(edit, node, self.gates)
        for v in gate_values:
            gate = self.gate(edit, v)
            if gate is None:
                continue
            for x in (*others, *gate_values):
                found = None if x is v else self._at(edit, root, gate, x)
                if found is not None:
                    return found
        return None

    def _at(self, edit: Editor, root: Value, gate: Gate, x: Value) -> Found | Refused | None:
        outer = polynomial(edit, root, (x, gate.result))
        if outer is None:
            return None
        inner = polynomial(edit, gate.operand, (x,))
        if inner is None:
            return None
        params = self.params(gate, inner, outer)
        if params is None:
            return None
        inside = {*outer.nodes, *gate.nodes, *inner.nodes}
        between = [n.results[0] for n in inside if n is not root.node]
        if not edit.only_inside(between, inside):
            return SHARED
        return Found(x, params)

    def gate(self, edit: Editor, v: Value) -> Gate | None:
        """Return the gate that a value is."""
        if function(v.node.op) not in self.gates:
            return None
        (operand,) = edit.operands(v.node)
        return Gate(v, operand, (v.node,))

    def params(
        self, gate: Gate, inner: Polynomial, outer: Polynomial
    ) -> tuple[tuple[str, float], ...] | None:
        """Return the parameters of the row, where the polynomials are those of the activation."""
        raise NotImplementedError

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Apply the row of the scalar table."""
        return edit.graph.unary(self.row, found.x, **dict(found.params))


def _factors(edit: Editor, root: Node, gates: frozenset[str]) -> tuple[list[Value], list[Value]]:
    """Return the gates below a product, and what else is multiplied with constants and them."""
    found: list[Value] = []
    others: list[Value] = []
    level: Sequence[Node] = (root,)
    for _ in range(DEPTH):
        below = []
        for node in level:
            for v in _variable_operands(edit, node):
                fn = function(v.node.op)
                if fn in gates:
                    found.append(v)
                    continue
                others.append(v)
                if fn in _PASSED:
                    below.append(v.node)
        level = below
    return found, others


_PASSED = frozenset({"add", "sub", "mul", "div", "neg", "affine"})


def _variable_operands(edit: Editor, node: Node) -> Iterator[Value]:
    """Yield the operands that are no constants; of a sum, only where one is a constant."""
    operands = edit.operands(node)
    if len(operands) == 1:
        yield from operands
        return
    first, second = (uniform_number(edit, v) is not None for v in operands)
    if function(node.op) in ("add", "sub") and not (first or second):
        return
    if not first:
        yield operands[0]
    if not second and operands[1] is not operands[0]:
        yield operands[1]


class Gelu(GatedRule):
    """The error-function form: x/2 * (1 + erf(x / sqrt(2)))."""

    name = "gelu"
    row = "gelu"
    gates = frozenset({"erf"})

    def params(
        self, gate: Gate, inner: Polynomial, outer: Polynomial
    ) -> tuple[tuple[str, float], ...] | None:
        """Compare both polynomials."""
        dtype = gate.result.dtype
        right = inner.equals({(1,): math.sqrt(0.5)}, dtype) and outer.equals(
            HALF_PLUS_HALF_GATED, dtype
        )
        return () if right else None


class GeluTanh(GatedRule):
    """The tanh form, also written with a sigmoid: (1 + tanh(u)) / 2 = sigmoid(2u)."""

    name = "gelu_tanh"
    row = "gelu_tanh"
    gates = frozenset({"tanh", "sigmoid"})

    def params(
        self, gate: Gate, inner: Polynomial, outer: Polynomial
    ) -> tuple[tuple[str, float], ...] | None:
        """Compare both polynomials."""
        dtype, is_tanh = gate.result.dtype, function(gate.nodes[0].op) == "tanh"
        scale = TANH_SCALE if is_tanh else 2 * TANH_SCALE
        right = inner.equals({(1,): scale, (3,): scale * CUBIC}, dtype) and outer.equals(
            HALF_PLUS_HALF_GATED if is_tanh else GATED, dtype
        )
        return () if right else None


class Silu(GatedRule):
    """x * sigmoid(x)."""

    name = "silu"
    row = "silu"
    gates = frozenset({"sigmoid"})

    def params(
        self, gate: Gate, inner: Polynomial, outer: Polynomial
    ) -> tuple[tuple[str, float], ...] | None:
        """Compare both polynomials."""
        exact = inner.terms == {(1,): 1.0} and outer.terms == GATED
        return () if exact else None


class Swish(GatedRule):
    """x * sigmoid(alpha*x) for an alpha other than 1."""

    name = "swish"
    row = "swish"
    gates = frozenset({"sigmoid"})

    def params(
        self, gate: Gate, inner: Polynomial, outer: Polynomial
    ) -> tuple[tuple[str, float], ...] | None:
        """Read alpha off the inner polynomial."""
        alpha = inner.terms.get((1,))
        if alpha is None or len(inner.terms) != 1 or alpha == 1 or outer.terms != GATED:
            return None
        return (("alpha", alpha),)

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Call it quick_gelu where alpha is 1.702."""
        ((_, alpha),) = found.params
        row = "quick_gelu" if close(alpha, 1.702, found.x.dtype) else "swish"
        return edit.graph.unary(row, found.x, alpha=alpha)


class HardSwish(GatedRule):
    """x * clip(x + 3, 0, 6) / 6, or x * hard_sigmoid(x) with alpha 1/6 and beta 1/2."""

    name = "hard_swish"
    row = "hard_swish"
    gates = frozenset({"hard_sigmoid", "min", "max", "relu"})

    def gate(self, edit: Editor, v: Value) -> Gate | None:
        """Look for a hard sigmoid, or for a clip to 0..6."""
        if function(v.node.op) == "hard_sigmoid":
            return super().gate(edit, v)
        clamp = clamp_at(edit, v)
        if clamp is None or (clamp.low, clamp.high) != (0, 6):
            return None
        return Gate(v, clamp.x, clamp.nodes)

    def params(
        self, gate: Gate, inner: Polynomial, outer: Polynomial
    ) -> tuple[tuple[str, float], ...] | None:
        """Compare both polynomials, after the hard sigmoid's own line."""
        dtype, op = gate.result.dtype, gate.nodes[0].op
        wanted: Mapping[tuple[int, ...], float] = {(1,): 1.0, (0,): 3.0}
        if function(op) != "hard_sigmoid":
            right = inner.equals(wanted, dtype) and outer.equals({XG: 1 / 6}, dtype)
            return () if right else None
        assert isinstance(op, Unary)
        params = dict(op.params)
        alpha, beta = params.get("alpha", 0.2), params.get("beta", 0.5)
        slope = alpha * inner.terms.get((1,), 0.0)
        offset = alpha * inner.terms.get((0,), 0.0) + beta
        right = (
            inner.terms.keys() <= wanted.keys()
            and close(slope, 1 / 6, dtype)
            and close(offset, 0.5, dtype)
            and outer.equals(GATED, dtype)
        )
        return () if right else None


class Mish(GatedRule):
    """x * tanh(softplus(x))."""

    name = "mish"
    row = "mish"
    gates = frozenset({"tanh"})

    def gate(self, edit: Editor, v: Value) -> Gate | None:
        """Look for the softplus below the tanh."""
        outer = super().gate(edit, v)
        if outer is None or function(outer.operand.node.op) != "softplus":
            return None
        node = outer.operand.node
        return Gate(v, edit.operands(node)[0], (*outer.nodes, node))

    def params(
        self, gate: Gate, inner: Polynomial, outer: Polynomial
    ) -> tuple[tuple[str, float], ...] | None:
        """Compare both polynomials."""
        exact = inner.terms == {(1,): 1.0} and outer.terms == GATED
        return () if exact else None


RULES = (Gelu(), GeluTanh(), Silu(), Swish(), HardSwish(), Mish())
