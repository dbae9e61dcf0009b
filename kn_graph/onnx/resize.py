"""Converters of Resize and Upsample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from kn_graph.dim import Size, floordiv, size_min, size_prod
from kn_graph.dtype import DType
from kn_graph.interpolation import Coordinates, NearestRule, simplest_fraction
from kn_graph.onnx.registry import converter
from kn_graph.ops.elementwise import Binary, Cast
from kn_graph.ops.layout import Broadcast, Concat, View

if TYPE_CHECKING:
    from kn_graph.onnx.context import NodeContext
    from kn_graph.value import Value

__all__: list[str] = []

NEAREST = tuple(r for r in get_args(NearestRule) if r != "simple")
MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear"}
"""Names of the modes before opset 11."""

Ratio = tuple[Size, Size]


# ---- before opset 11 ------------------------------------------------------------------------


@converter("Upsample", until=6)
def upsample_image(ctx: NodeContext) -> Value:
    """Height and width of an image, each with a scale."""
    x = ctx.input(0)
    if x.rank != 4:
        ctx.fail(f"upsamples images [N, C, H, W], got {x.type}")
    return _resize_old(ctx, x, (1.0, 1.0, ctx.real("height_scale"), ctx.real("width_scale")))


@converter("Upsample", since=7, until=8)
def upsample_attribute(ctx: NodeContext) -> Value:
    """One scale an axis, as an attribute."""
    return _resize_old(ctx, ctx.input(0), ctx.reals("scales"))


@converter("Upsample", since=9)
@converter("Resize", until=10)
def upsample(ctx: NodeContext) -> Value:
    """One scale an axis, as an input."""
    return _resize_old(ctx, ctx.input(0), ctx.input(1))


def _resize_old(ctx: NodeContext, x: Value, scales: Sequence[float] | Value) -> Value:
    """Positions are x / scale; the nearest is below where an axis grows, above where it shrinks."""
    mode = MODES[ctx.choice("mode", "nearest", tuple(MODES))]
    settings = {"mode": mode, "coordinates": "asymmetric", "nearest": "simple"}
    if isinstance(scales, Sequence):
        return _scale(ctx, x, range(x.rank), [simplest_fraction(s) for s in scales], None, settings)
    return _scale(ctx, x, range(x.rank), scales, None, settings)


# ---- from opset 11 on -----------------------------------------------------------------------


@converter("Resize", since=11)
def resize(ctx: NodeContext) -> Value:
    """Scales or sizes, for all axes or those named."""
    x, roi = ctx.input(0), _present(ctx, 1)
    scales, sizes = _present(ctx, 2), _present(ctx, 3)
    if (scales is None) == (sizes is None):
        ctx.fail("needs either scales or sizes")
    settings: dict[str, Any] = {
        "mode": ctx.choice("mode", "nearest", ("nearest", "linear", "cubic")),
        "coordinates": ctx.choice(
            "coordinate_transformation_mode", "half_pixel", get_args(Coordinates)
        ),
        "nearest": ctx.choice("nearest_mode", "round_prefer_floor", NEAREST),
        "cubic_a": ctx.real("cubic_coeff_a", -0.75),
        "exclude_outside": ctx.flag("exclude_outside", False),
        "extrapolation": ctx.real("extrapolation_value", 0.0),
    }
    axes = tuple(range(x.rank))
    policy = "stretch"
    if ctx.opset >= 18:
        settings["antialias"] = ctx.flag("antialias", False)
        axes = ctx.normal_axes(ctx.integers("axes", axes), x.rank)
        policies = ("stretch", "not_larger", "not_smaller")
        policy = ctx.choice("keep_aspect_ratio_policy", "stretch", policies)
    if settings["coordinates"] != "tf_crop_and_resize":
        roi = None
    elif roi is None:
        ctx.fail("tf_crop_and_resize needs a roi")
    if scales is not None:
        return _scale(ctx, x, axes, scales, roi, settings)
    wanted = _sizes(ctx, axes)
    if policy != "stretch":
        return _keep_aspect(ctx, x, axes, wanted, policy == "not_larger", roi, settings)
    work = _Work(ctx, x, axes, roi, settings)
    return work.resize([w != x.shape[a] for a, w in zip(axes, wanted, strict=True)], wanted)


def _present(ctx: NodeContext, index: int) -> Value | None:
    """Take an optional input; an empty tensor counts as none."""
    value = ctx.optional(index)
    return None if value is None or value.shape == (0,) else value


def _sizes(ctx: NodeContext, axes: Sequence[int]) -> tuple[Size, ...]:
    sizes = ctx.sizes(3)
    assert sizes is not None
    if len(sizes) != len(axes):
        ctx.fail(f"has {len(sizes)} sizes for {len(axes)} axes")
    return sizes


@dataclass(frozen=True)
class _Work:
    """A resize of some axes: leaves those alone that do not change."""

    ctx: NodeContext
    x: Value
    axes: Sequence[int]
    roi: Value | None
    settings: dict[str, Any]

    def resize(
        self,
        changed: Sequence[bool],
        sizes: Sequence[Size] | None,
        scales: Sequence[Fraction] | Value | None = None,
    ) -> Value:
        """Resize the axes that change, or of which the region of interest is not all."""
        g = self.ctx.graph
        crops = self._crops()
        kept = [i for i in range(len(self.axes)) if changed[i] or crops[i]]
        if not kept:
            return self.x
        roi = self.roi
        if roi is not None:
            roi = self._chosen(roi, [*kept, *(i + len(self.axes) for i in kept)])
        if scales is not None and not isinstance(scales, Sequence):
            chosen: Any = self._chosen(scales, kept)
        else:
            chosen = None if scales is None else [scales[i] for i in kept]
        axes = [self.axes[i] for i in kept]
        wanted = None if sizes is None else [sizes[i] for i in kept]
        return g.resize(self.x, axes, wanted, chosen, roi=roi, **self.settings)

    def _crops(self) -> list[bool]:
        count = len(self.axes)
        if self.roi is None:
            return [False] * count
        if self.roi.shape != (2 * count,):
            self.ctx.fail(f"the roi of {count} axes has shape {self.roi.type}")
        known = self.roi.constant
        if known is None:
            return [True] * count
        return [(known[i], known[i + count]) != (0, 1) for i in range(count)]

    def _chosen(self, vector: Value, indices: Sequence[int]) -> Value:
        g = self.ctx.graph
        if list(indices) == list(range(len(indices))) and vector.shape == (len(indices),):
            return vector
        if vector.constant is not None:
            return g.constant(vector.constant[list(indices)])
        return g.gather(vector, g.constant(np.array(indices, np.int64)))


# ---- scales ---------------------------------------------------------------------------------


def _scale(
    ctx: NodeContext,
    x: Value,
    axes: Sequence[int],
    scales: Sequence[Fraction] | Value,
    roi: Value | None,
    settings: dict[str, Any],
) -> Value:
    """Resize by scales: numbers, quotients of sizes, or a tensor only known at run time.

    The ONNX text also multiplies by the part of an axis that the region of interest is, but neither
    its own shape inference nor any runtime does.
    """
    known: Sequence[Fraction | Ratio | None]
    known = scales if isinstance(scales, Sequence) else _known_scales(scales)
    if len(known) != len(axes):
        ctx.fail(f"has {len(known)} scales for {len(axes)} axes")
    work = _Work(ctx, x, axes, roi, settings)
    changed = [k != 1 and not (isinstance(k, tuple) and k[0] == k[1]) for k in known]
    fractions = [k for k in known if isinstance(k, Fraction)]
    if len(fractions) == len(known):
        return work.resize(changed, None, fractions)
    sizes = [_exact_size(k, x.shape[a]) for a, k in zip(axes, known, strict=True)]
    exact = [s for s in sizes if s is not None]
    if len(exact) == len(sizes) and roi is None:
        return work.resize(changed, exact)
    assert not isinstance(scales, Sequence)
    return work.resize(changed, None, scales)


def _exact_size(known: Fraction | Ratio | None, n: Size) -> Size | None:
    """Return what an axis becomes, where the size alone says everything about the scale."""
    if known == 1:
        return n
    return known[0] if isinstance(known, tuple) and known[1] == n else None


def _known_scales(value: Value) -> list[Fraction | Ratio | None]:
    """Return what is known of each element of a float vector.

    Exporters compute scales as `Cast(new size) / Cast(old size)`, joined with constants.
    """
    array, op = value.constant, value.node.op
    if array is not None:
        return [simplest_fraction(s) for s in np.asarray(array, np.float32).ravel().tolist()]
    if isinstance(op, Concat):
        return [k for v in value.node.operands for k in _known_scales(v)]
    count = size_prod(value.shape)
    if isinstance(op, (View, Broadcast)) and size_prod(value.node.operands[0].shape) == count:
        return _known_scales(value.node.operands[0])
    if not isinstance(count, int):
        return [None]
    if isinstance(op, Binary) and op.fn == "div":
        above, below = (_size_content(v) for v in value.node.operands)
        if above is not None and below is not None:
            return list(zip(above, below, strict=True))
    return [None] * count


def _size_content(value: Value) -> list[Size] | None:
    """Return the sizes that a tensor of floats was converted from."""
    if not isinstance(value.node.op, Cast) or value.node.operands[0].content is None:
        return None
    sizes: list[Size] = value.node.operands[0].content.ravel().tolist()
    return sizes


# ---- aspect ratio ---------------------------------------------------------------------------


def _keep_aspect(
    ctx: NodeContext,
    x: Value,
    axes: Sequence[int],
    limits: Sequence[Size],
    not_larger: bool,
    roi: Value | None,
    settings: dict[str, Any],
) -> Value:
    """Resize all axes by one scale, the least or the greatest of limit over size."""
    g, old = ctx.graph, [x.shape[a] for a in axes]
    if 0 in old:
        ctx.fail(f"keeps the aspect ratio of an empty tensor {x.type}")
    work = _Work(ctx, x, axes, roi, settings)
    pairs = list(zip(limits, old, strict=True))
    numbers = [(w, n) for w, n in pairs if isinstance(w, int) and isinstance(n, int)]
    if len(numbers) == len(axes):
        scale = (min if not_larger else max)(Fraction(w, n) for w, n in numbers)
        sizes: list[Size] = [int(scale * n + Fraction(1, 2)) for _, n in numbers]
        return work.resize([scale != 1] * len(axes), sizes, [scale] * len(axes))
    # rounding half up is monotone: the least of the rounded products is the rounded least
    sizes = []
    for n in old:
        each = [floordiv(2 * w * n + m, 2 * m) for w, m in pairs]
        sizes.append(size_min(*each) if not_larger else -size_min(*(-e for e in each)))
    above, below = (g.cast(g.size_tensor(_objects(s)), DType.FLOAT32) for s in (limits, old))
    extreme = g.reduce("min" if not_larger else "max", g.div(above, below), [0], keep=True)
    return work.resize([True] * len(axes), sizes, g.broadcast(extreme, [len(axes)]))


def _objects(sizes: Sequence[Size]) -> np.ndarray[Any, Any]:
    out = np.empty(len(sizes), object)
    out[:] = sizes
    return out
