"""Chains of scales and biases by constants: what they are, and how they add up.

A step is an addition, subtraction, multiplication or division of a float tensor and a constant of
any shape that is broadcast to it. Steps follow each other where nobody else reads what is between
them; views, permutations and flips may stand between them.

```
x -> x*s1 -> + b1 -> - b2 -> *s2    =    x*S + B    with S = s1*s2, B = (b1 - b2)*s2
```

Factors are multiplied in float64 and rounded once, when a constant is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.ops.elementwise import Binary, Cast, Unary
from kn_graph.ops.layout import Flip, Permute, View
from kn_graph.ops.source import Input
from kn_graph.optimizer.compact import compact_constant, through_layout
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.pattern import uniform_number
from kn_graph.optimizer.polynomial import FLOATS
from kn_graph.types import Shape
from kn_graph.value import Node, Value

__all__ = [
    "Affine",
    "Chain",
    "Link",
    "Segment",
    "apply_affine",
    "apply_links",
    "chain_below",
    "goes_on",
    "is_quantized",
    "link_of",
    "rounded",
    "segments",
]

Array = np.ndarray[Any, Any]

LARGEST = 4 << 20
"""Bytes of a constant that takes part: larger ones are left where they are."""

LAYOUTS = (View, Permute, Flip)

ROUNDINGS = frozenset({"round_even", "round", "floor", "ceil", "trunc"})


# ---- x*S + B --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Affine:
    """x -> x*scale + bias, with compact float64 arrays; None stands for 1 and for 0."""

    scale: Array | None = None
    bias: Array | None = None

    @property
    def length(self) -> int:
        """How many operations it takes."""
        return (self.scale is not None) + (self.bias is not None)

    def then(self, after: Affine) -> Affine | None:
        """Return this one followed by another, unless the constants would grow or overflow."""
        if after.scale is None:
            scale, bias = self.scale, self.bias
        else:
            scale = after.scale if self.scale is None else _product(self.scale, after.scale)
            bias = None if self.bias is None else _product(self.bias, after.scale)
            if scale is None or (bias is None and self.bias is not None):
                return None
        if after.bias is not None:
            bias = after.bias if bias is None else _sum(bias, after.bias)
            if bias is None:
                return None
        return Affine(scale, bias)

    def through(self, node: Node, before: Shape, *, back: bool = False) -> Affine | None:
        """Return the same behind a layout operation, or, with `back`, in front of it."""
        moved: list[Array | None] = []
        for a in (self.scale, self.bias):
            m = None if a is None else through_layout(node, a, before, back=back)
            if m is None and a is not None:
                return None
            moved.append(m)
        return Affine(*moved)

    def simplified(self) -> Affine:
        """Return the same without a scale that is 1 and without a bias that is 0."""
        scale, bias = self.scale, self.bias
        return Affine(
            None if scale is None or (scale == 1).all() else scale,
            None if bias is None or not bias.any() else bias,
        )

    def fits(self, dtype: DType) -> bool:
        """Return whether the constants are numbers of a type, with no scale lost to underflow."""
        with np.errstate(all="ignore"):
            for a in (self.scale, self.bias):
                if a is not None and not np.isfinite(a.astype(dtype.numpy)).all():
                    return False
            s = self.scale
            return s is None or not ((s.astype(dtype.numpy) == 0) & (s != 0)).any()


def _product(a: Array, b: Array) -> Array | None:
    return None if _grows(a, b) else a * b


def _sum(a: Array, b: Array) -> Array | None:
    return None if _grows(a, b) else a + b


def _grows(a: Array, b: Array) -> bool:
    shape = np.broadcast_shapes(a.shape, b.shape)
    return int(np.prod(shape)) > max(a.size, b.size)


def rounded(a: Array, dtype: DType) -> Array:
    """Return a constant in the element type of the graph."""
    out: Array = np.asarray(a, np.float64).astype(dtype.numpy)
    return out.reshape(()) if out.size == 1 else out


# ---- links of a chain -----------------------------------------------------------------------


@dataclass(frozen=True)
class Link:
    """A step, or a layout operation between steps.

    Attributes:
        node: what it is.
        side: which operand is the tensor.
        step: what it does, for a step that does something; None for a layout operation.
    """

    node: Node
    side: int = 0
    step: Affine | None = None

    def inner(self, edit: Editor) -> Value:
        """Return the tensor that it is applied to."""
        return edit.operands(self.node)[self.side]

    def again(self, edit: Editor, x: Value) -> Value:
        """Apply the same to another value."""
        operands = list(edit.operands(self.node))
        operands[self.side] = x
        return edit.graph.push(self.node.op, *operands)


def link_of(edit: Editor, node: Node) -> Link | None:
    """Return what a node is in a chain, if anything."""
    op = node.op
    if isinstance(op, LAYOUTS):
        return Link(node)
    if not isinstance(op, Binary) or op.fn not in _STEPS:
        return None
    if node.results[0].dtype not in FLOATS:
        return None
    a, b = edit.operands(node)
    for side, v in ((0, b), (1, a)):
        constant = compact_constant(edit, v)
        if constant is None or constant.nbytes > LARGEST:
            continue
        if compact_constant(edit, (a, b)[side]) is not None:
            return None  # both are constants: nothing of this is left to run
        if _stays(edit, node):
            return None
        step = _step(edit, v, op.fn, side, constant)
        return None if step is None else Link(node, side, step)
    return None


def _step(edit: Editor, v: Value, fn: str, side: int, constant: Array) -> Affine | None:
    """Return what a function does with a constant; chains are looked at from each of their ends."""
    key = (v, fn, side)
    if key not in edit.steps:
        step = _STEPS[fn](constant.astype(np.float64), side)
        edit.steps[key] = step if step is not None and step.fits(v.dtype) else None
    found: Affine | None = edit.steps[key]
    return found


def _added(c: Array, side: int) -> Affine:
    return Affine(bias=c)


def _subtracted(c: Array, side: int) -> Affine:
    return Affine(bias=-c) if side == 0 else Affine(np.full((1,) * c.ndim, -1.0), c)


def _multiplied(c: Array, side: int) -> Affine:
    return Affine(scale=c)


def _divided(c: Array, side: int) -> Affine | None:
    if side == 1:
        return None
    with np.errstate(all="ignore"):
        return Affine(scale=1 / c)


_STEPS = {"add": _added, "sub": _subtracted, "mul": _multiplied, "div": _divided}


# ---- what is no part of a chain -------------------------------------------------------------


def _stays(edit: Editor, node: Node) -> bool:
    """Return whether a step is left alone because of what is done with its result.

    What is rounded to integers: an ulp would become a step, and quantization would not be
    recognised. The x + 3 of clip(x + 3, 0, 6)/6, the + 0.5 of clip(x/6 + 0.5, 0, 1) and its factor:
    they belong to the activation.
    """
    for user in edit.users(node.results[0]):
        op = user.op
        if isinstance(op, Unary) and op.fn in ROUNDINGS:
            return True
        if isinstance(op, Cast) and not op.dtype.is_float:
            return True
        if _starts_hard_sigmoid(edit, node, user):
            return True
    return False


def _starts_hard_sigmoid(edit: Editor, node: Node, user: Node) -> bool:
    assert isinstance(node.op, Binary)
    if not isinstance(user.op, (Binary, Unary)):
        return False
    if node.op.fn == "add":
        clips = user.op.fn in ("min", "max", "relu")
        return clips and _uniform_operand(edit, node) in (3.0, 0.5)
    return (
        node.op.fn in ("mul", "div")
        and user.op.fn == "add"
        and _uniform_operand(edit, user) == 0.5
        and _uniform_operand(edit, node) is not None
        and any(_starts_hard_sigmoid(edit, user, u) for u in edit.users(user.results[0]))
    )


def _uniform_operand(edit: Editor, node: Node) -> float | None:
    for v in edit.operands(node):
        number = uniform_number(edit, v)
        if number is not None:
            return number
    return None


def is_quantized(edit: Editor, base: Value) -> bool:
    """Return whether a value is made of computed integers of at most 16 bits.

    Scales behind it are those of a quantization; they stay so that it can be recognised. An input
    of bytes, such as a picture, is none.
    """
    if not isinstance(base.node.op, Cast):
        return False
    (x,) = edit.operands(base.node)
    return x.dtype.is_int and x.dtype.bits <= 16 and not isinstance(x.node.op, Input)


# ---- chains ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """Links over a value, the innermost first."""

    base: Value
    links: tuple[Link, ...]


def chain_below(edit: Editor, top: Value) -> Chain:
    """Return the longest chain that ends in a value; who reads that value does not matter."""
    links: list[Link] = []
    v = top
    while not links or edit.uses(v) == 1:
        link = link_of(edit, v.node)
        if link is None:
            break
        links.append(link)
        v = link.inner(edit)
    return Chain(v, tuple(reversed(links)))


def goes_on(edit: Editor, node: Node) -> bool:
    """Return whether a longer chain contains the one that ends in a step."""
    v = node.results[0]
    while edit.uses(v) == 1 and not edit.is_output(v):
        (user,) = edit.users(v)
        link = link_of(edit, user)
        if link is None:
            return False
        if link.step is not None:
            return True
        v = user.results[0]
    return False


# ---- segments -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """Consecutive links whose steps are one scale and one bias together.

    Attributes:
        links: the links, the innermost first; the last one is a step, unless none is.
        inside: what they are together, applied in front of the layout operations among them.
        outside: the same, applied behind them.
    """

    links: tuple[Link, ...]
    inside: Affine
    outside: Affine

    @property
    def layouts(self) -> list[Link]:
        """The layout operations among the links."""
        return [link for link in self.links if link.step is None]

    @property
    def steps(self) -> list[Link]:
        """The other links."""
        return [link for link in self.links if link.step is not None]

    @property
    def saved(self) -> int:
        """How many operations fewer one scale and one bias are; a single step is left as it is."""
        steps = len(self.steps)
        return steps - self.inside.length if steps > 1 else 0


def segments(edit: Editor, links: Sequence[Link], *, through: bool = False) -> list[Segment]:
    """Cut a chain into as few segments as go, the innermost first.

    Args:
        edit: the graph.
        links: the chain.
        through: whether the first segment may begin with layout operations, so that its steps move
            in front of them. Otherwise these are segments without a step, as are those that a
            segment cannot be moved through.
    """
    out: list[Segment] = []
    at = 0
    while at < len(links):
        if links[at].step is None and not (through and at == 0):
            out.append(Segment((links[at],), Affine(), Affine()))
        else:
            out.append(_segment(edit, links, at))
        at += len(out[-1].links)
    return out


def _segment(edit: Editor, links: Sequence[Link], start: int) -> Segment:
    """Return the longest segment from a link on."""
    total = inside = outside = Affine()
    stop = start + 1
    layouts: list[tuple[Node, Shape]] = []
    for at in range(start, len(links)):
        link = links[at]
        if link.step is None:
            before = link.inner(edit).shape
            moved = total.through(link.node, before)
            if moved is None:
                break
            total = moved
            layouts.append((link.node, before))
            continue
        joined = total.then(link.step)
        in_front = None if joined is None else _in_front(joined, layouts)
        if joined is None or in_front is None or not joined.fits(link.node.results[0].dtype):
            break
        total, inside, outside, stop = joined, in_front, joined, at + 1
    return Segment(tuple(links[start:stop]), inside.simplified(), outside.simplified())


def _in_front(affine: Affine, layouts: Sequence[tuple[Node, Shape]]) -> Affine | None:
    current: Affine | None = affine
    for node, before in reversed(layouts):
        current = None if current is None else current.through(node, before, back=True)
    return current


def apply_affine(edit: Editor, x: Value, affine: Affine) -> Value:
    """Build x*scale + bias."""
    g = edit.graph
    if affine.scale is not None:
        x = g.mul(x, g.broadcast(g.constant(rounded(affine.scale, x.dtype)), x.shape))
    if affine.bias is not None:
        x = g.add(x, g.broadcast(g.constant(rounded(affine.bias, x.dtype)), x.shape))
    return x


def apply_links(edit: Editor, x: Value, links: Sequence[Link]) -> Value:
    """Build the same links over another value."""
    for link in links:
        x = link.again(edit, x)
    return x
