"""Fewer instructions for the native interpreter: arithmetic with constants, and superinstructions.

An instruction costs a pass over a tile, however little it does, so `mul, add, max` becomes one
`affine_clamp`. Each of the operations that become one is still rounded: results do not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kn_cpu.scalar_lower import Code, Node

__all__ = ["simplify"]

_INF = float("inf")


def simplify(code: Code, outputs: Sequence[int]) -> tuple[Code, tuple[int, ...]]:
    """Return equal code with fewer instructions, without those that nobody needs."""
    for rewrite in (_with_immediates, _fused):
        code, outputs = _pass(code, outputs, rewrite)
    return _pass(code, outputs, lambda found: None)  # drops what only fused values read


class _Found:
    """A value that is about to be appended, and what a rewrite may ask about it.

    Attributes:
        node: the value.
        new: the code that it goes to.
    """

    def __init__(self, node: Node, new: Code, uses: Counter[int]) -> None:
        self.node = node
        self.new = new
        self._uses = uses

    def single(self, place: int, *ops: str) -> Node | None:
        """Return an operand if it is one of these instructions and nobody else reads it."""
        node = self.new.nodes[place]
        return node if node.op in ops and self._uses[place] == 1 else None

    def number(self, place: int) -> float | None:
        """Return the value of an operand that is a float32 constant other than NaN."""
        node = self.new.nodes[place]
        if node.bits is None or node.kind != "f32":
            return None
        value = float(np.int32(node.bits).view(np.float32))
        return None if np.isnan(value) else value


_Rewrite = Callable[[_Found], Node | None]


def _pass(code: Code, outputs: Sequence[int], rewrite: _Rewrite) -> tuple[Code, tuple[int, ...]]:
    live = _live(code, outputs)
    new = Code([n.kind for n in code.nodes[: code.inputs]])
    place = {i: i for i in range(code.inputs)}
    uses: Counter[int] = Counter()  # by places in the new code; known before it is written
    readers = Counter(outputs)
    for i in live:
        readers.update(code.nodes[i].args)
    for i in live:
        node = code.nodes[i]
        args = tuple([place[a] for a in node.args])
        moved = Node(node.op, node.kind, args, node.k, node.bits)
        place[i] = new.add(rewrite(_Found(moved, new, uses)) or moved)
        uses[place[i]] += readers[i]
    return new, tuple(place[i] for i in outputs)


def _live(code: Code, outputs: Sequence[int]) -> list[int]:
    wanted = set(outputs)
    for i in range(len(code.nodes) - 1, code.inputs - 1, -1):
        if i in wanted:
            wanted.update(code.nodes[i].args)
    return sorted(i for i in wanted if i >= code.inputs)


def _affine(x: int, scale: float = 1.0, shift: float = -0.0) -> Node:
    """Return x * scale + shift; adding -0.0 and multiplying by 1.0 change nothing."""
    return Node("affine_f32", "f32", (x,), (scale, shift, -_INF, _INF))


def _clamp(x: int, low: float = -_INF, high: float = _INF) -> Node:
    return Node("clamp_f32", "f32", (x,), (1.0, -0.0, low, high))


def _with_immediates(found: _Found) -> Node | None:
    """Arithmetic with one constant operand."""
    make = _IMMEDIATE.get(found.node.op)
    if make is None:
        return None
    x, y = found.node.args
    left, right = found.number(x), found.number(y)
    if right is not None:
        return make[0](x, right)
    return make[1](y, left) if left is not None else None


def _divided(x: int, c: float) -> Node | None:
    """Multiply by the inverse where that is exact: of powers of two."""
    exact = abs(np.frexp(c)[0]) == 0.5 and 2.0**-100 < abs(c) < 2.0**100
    return _affine(x, 1.0 / c) if exact else None


_Make = Callable[[int, float], "Node | None"]
_IMMEDIATE: dict[str, tuple[_Make, _Make]] = {
    # with the constant on the right, on the left
    "add_f32": (lambda x, c: _affine(x, shift=c), lambda x, c: _affine(x, shift=c)),
    "sub_f32": (lambda x, c: _affine(x, shift=-c), lambda x, c: _affine(x, -1.0, c)),
    "mul_f32": (lambda x, c: _affine(x, c), lambda x, c: _affine(x, c)),
    "div_f32": (_divided, lambda x, c: None),
    "min_f32": (lambda x, c: _clamp(x, high=c), lambda x, c: _clamp(x, high=c)),
    "max_f32": (lambda x, c: _clamp(x, low=c), lambda x, c: _clamp(x, low=c)),
}


def _fused(found: _Found) -> Node | None:
    """One instruction for two."""
    fuse = _FUSE.get(found.node.op)
    return None if fuse is None else fuse(found)


def _fused_clamp(found: _Found) -> Node | None:
    node = found.node
    inner = found.single(node.args[0], *_CLAMPED)
    if inner is None:
        return None
    low, high = node.k[2:]
    k = (*inner.k[:2], *(min(high, max(low, bound)) for bound in inner.k[2:]))
    return replace(inner, op=_CLAMPED[inner.op], k=k)


_CLAMPED = {
    "clamp_f32": "clamp_f32",
    "affine_f32": "affine_clamp_f32",
    "affine_clamp_f32": "affine_clamp_f32",
    "add_f32": "add_clamp_f32",
    "add_clamp_f32": "add_clamp_f32",
    "mul_add_f32": "mul_add_clamp_f32",
    "mul_add_clamp_f32": "mul_add_clamp_f32",
}


def _fused_affine(found: _Found) -> Node | None:
    """A constant added to a product with a constant."""
    scale, shift = found.node.k[:2]
    inner = found.single(found.node.args[0], "affine_f32")
    if inner is None or scale != 1.0 or repr(inner.k[1]) != "-0.0":
        return None
    return _affine(inner.args[0], inner.k[0], shift)


def _fused_add(found: _Found) -> Node | None:
    """A product added."""
    x, y = found.node.args
    for product, other in ((x, y), (y, x)):
        inner = found.single(product, "mul_f32")
        if inner is not None:
            return Node("mul_add_f32", "f32", (*inner.args, other))
    return None


def _fused_mul(found: _Found) -> Node | None:
    """A value times its own sigmoid, or its own hard sigmoid with the usual numbers."""
    x, y = found.node.args
    for value, gate in ((x, y), (y, x)):
        inner = found.single(gate, "sigmoid_f32", "affine_clamp_f32")
        if inner is None or inner.args != (value,):
            continue
        if inner.op == "sigmoid_f32":
            return Node("silu_f32", "f32", (value,))
        if (np.float32(inner.k[0]), *inner.k[1:]) == (np.float32(1 / 6), 0.5, 0.0, 1.0):
            return Node("hard_swish_f32", "f32", (value,))
    return None


_FUSE: dict[str, _Rewrite] = {
    "clamp_f32": _fused_clamp,
    "affine_f32": _fused_affine,
    "add_f32": _fused_add,
    "mul_f32": _fused_mul,
}
