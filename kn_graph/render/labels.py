"""What stands in boxes and along arrows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.liveness import bodies_of
from kn_graph.op import Op
from kn_graph.ops.layout import Broadcast, Flip, Permute, Slice, View
from kn_graph.ops.source import Input
from kn_graph.render.families import family_of
from kn_graph.render.picture import Box
from kn_graph.types import TensorType, ValueType
from kn_graph.value import Node, Value

__all__ = ["TITLE_WIDTH", "Labels", "constant_of", "elided", "is_arranging", "type_text"]

ARRANGING = (View, Broadcast, Permute, Slice, Flip)
"""Operations that compute nothing: drawn small, and folded away where they arrange a constant."""

TITLE_WIDTH, LINE_WIDTH, TYPE_WIDTH, SIZE_WIDTH = 30, 34, 48, 22
LONG_NAME, SHORT_NAME = 16, 10
"""Names of sizes that are longer, and what becomes of them."""

MAX_LINES = 4
"""Of constants, and of results."""

MAX_ATTRIBUTE = 24
"""Longer ones are left to the details."""

NAME = re.compile(r"[^\W\d][\w.]*")
ROUNDED_UP = re.compile(r"\(\(([^\W\d][\w.]*)\+(\d+)\)//(\d+)\)")

SHORT_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    **{f"{kind}{n}": f"{kind[0]}{n}" for kind in ("int", "uint") for n in (2, 4, 8, 16, 32, 64)},
}

PLAIN = {"strides": 1, "dilations": 1, "pads": 0, "groups": 1, "output_padding": 0, "step": 1}
"""Attributes that go without saying where all their elements are this."""

SINGULAR = {"strides": "stride", "dilations": "dilation", "pads": "pad", "sizes": "size"}
HIDDEN = frozenset({"fn", "kind", "dtype", "shape", "sizes", "length", "saturate", "round_mode"})
"""Said by the title or by the types along the arrows, or of interest in the details only."""


def elided(text: str, width: int) -> str:
    """Return the text, its middle replaced by an ellipsis where it is longer than the width."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def size_text(size: Size) -> str:
    """Return a size as short as it can be told: `2*⌈height/32⌉`."""
    text = ROUNDED_UP.sub(_rounded_up, str(size))
    return elided(NAME.sub(_short_name, text), SIZE_WIDTH)


def _short_name(found: re.Match[str]) -> str:
    name = found[0]
    return elided(name, SHORT_NAME) if len(name) > LONG_NAME else name


def _rounded_up(found: re.Match[str]) -> str:
    name, added, divisor = found.groups()
    return f"⌈{name}/{divisor}⌉" if int(added) + 1 == int(divisor) else found[0]


def type_text(t: ValueType) -> str:
    """Return a type as it stands along an arrow: `f32 batch×3×224×224`."""
    if not isinstance(t, TensorType):
        return elided(str(t), LINE_WIDTH)
    dtype = SHORT_DTYPES.get(str(t.dtype), str(t.dtype))
    shape = "×".join(map(size_text, t.shape)) if t.shape else "scalar"
    return f"{dtype} {elided(shape, TYPE_WIDTH)}"


def is_arranging(op: Op) -> bool:
    """Whether an operation computes nothing but where elements are."""
    return isinstance(op, ARRANGING)


def constant_of(v: Value) -> np.ndarray[Any, Any] | None:
    """Return the constant behind operations that only arrange it."""
    while isinstance(v.node.op, ARRANGING):
        (v,) = v.node.operands
    return v.constant


def _names_of(node: Node) -> list[str]:
    """Return what the model file calls a node, its results and the weights that it reads."""
    found = [*node.origins]
    for v in node.results:
        found += v.names
    for v in node.operands:
        while isinstance(v.node.op, ARRANGING) and constant_of(v) is not None:
            found += v.names
            (v,) = v.node.operands
        weight = v.constant
        found += v.names if weight is not None and weight.size > 1 else ()
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Labels:
    """How boxes of nodes are written.

    Attributes:
        hide_const: leave constants out.
        show_ids: begin with the number of the node.
        values: values by name, of which the range is shown.
    """

    hide_const: bool = False
    show_ids: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)

    def box_of(self, node: Node) -> Box:
        """Return the box of one node."""
        op = node.op
        is_input = isinstance(op, Input)
        title = op.name if isinstance(op, Input) else op.title
        title = f"%{node.index} {title}" if self.show_ids else title
        lines = [] if is_input else attribute_lines(op)
        lines += [] if self.hide_const else _constant_lines(node)
        if is_input or len(node.results) > 1:
            lines += [type_text(v.type) for v in node.results[:MAX_LINES]]
        lines += [self._range(v) for v in node.results]
        return Box(
            elided(title, TITLE_WIDTH),
            [line for line in lines if line],
            family_of(op),
            "end" if is_input else "small" if is_arranging(op) else "op",
            _details(node),
            _names_of(node),
        )

    def _range(self, v: Value) -> str:
        names = (n for n in (*v.names, v.name) if n in self.values)
        return next((_range_text(self.values[n]) for n in names), "")


def _details(node: Node) -> list[str]:
    found = [node.op.describe()]
    found += [f"reads {v.type}" + " constant" * (constant_of(v) is not None) for v in node.operands]
    found += [f"makes {v.type}" for v in node.results]
    return found + [f"body {body.name}: {len(body.nodes)} nodes" for body in bodies_of(node)]


def attribute_lines(op: Op) -> list[str]:
    """Return the attributes that say something, filled into lines."""
    shown = (_attribute(f.name, getattr(op, f.name), f.default) for f in fields(op))
    return _filled([text for text in shown if text])


def _attribute(name: str, value: Any, default: Any) -> str:
    if name in HIDDEN or value is None or value is False or value in ("", ()) or value == default:
        return ""
    if (isinstance(value, (int, float, str)) and not isinstance(value, bool)) or _is_numbers(value):
        numbers = list(_flat(value))
        if name in PLAIN and all(x == PLAIN[name] for x in numbers):
            return ""
        if name in SINGULAR and len(set(map(str, numbers))) == 1:
            numbers = numbers[:1]
        text = f"{SINGULAR.get(name, name)} {','.join(map(_number, numbers))}"
    elif value is True:
        text = name
    else:
        text = f"{name} {value}" if not hasattr(value, "nodes") else ""
    return text if len(text) <= MAX_ATTRIBUTE else ""


def _is_numbers(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(x, (int, float)) for x in _flat(value))


def _flat(value: Any) -> Iterable[Any]:
    if not isinstance(value, tuple):
        return (value,)
    return (y for x in value for y in (x if isinstance(x, tuple) else (x,)))


def _number(x: Any) -> str:
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def _filled(texts: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + len(text) + 2 <= LINE_WIDTH:
            lines[-1] += f", {text}"
        else:
            lines.append(text)
    return lines


def _constant_lines(node: Node) -> list[str]:
    """Small constants as numbers, others as types; `(1, ·)` where the constant comes first."""
    lines = []
    for i, v in enumerate(node.operands):
        a = constant_of(v)
        if a is None:
            continue
        text = _scalar_text(a) if a.size == 1 else type_text(_type_of(a))
        lines.append(f"({text}, ·)" if i == 0 and len(node.operands) == 2 else text)
    return [elided(line, LINE_WIDTH) for line in lines[:MAX_LINES]] + ["…"] * (
        len(lines) > MAX_LINES
    )


def _scalar_text(a: np.ndarray[Any, Any]) -> str:
    x = a.reshape(-1)[0]
    return f"{x:.6g}" if DType.from_numpy(a.dtype).is_float else str(x)


def _type_of(a: np.ndarray[Any, Any]) -> TensorType:
    return TensorType(DType.from_numpy(a.dtype), a.shape)


def _range_text(x: Any) -> str:
    if not isinstance(x, np.ndarray) or not x.size or x.dtype.kind not in "fiu":
        return ""
    wide = x.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    bad = f"{wide.size - finite.size} not finite" if finite.size < wide.size else ""
    text = f"{finite.min():.4g} .. {finite.max():.4g}" if finite.size else ""
    return ", ".join(filter(None, (text, bad)))
