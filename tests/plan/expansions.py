"""Graphs of operations that plans carry out as others: a table for the planner and each device."""

from __future__ import annotations

from typing import Any

from kn_graph import DType, Graph, Value
from kn_graph.ops.attention import Attention, ScoresStage
from kn_graph.ops.deform import DeformConv
from kn_graph.ops.fold import Col2Im
from kn_graph.ops.nms import NonMaxSuppression
from kn_graph.ops.nonzero import NonZero, Unique
from kn_graph.ops.pool import Pool, PoolFunction
from kn_graph.ops.reduce import Det
from kn_graph.ops.resize import Resize, ResizeMode
from kn_graph.ops.signal import Dft
from tests.ops.example import Example

__all__ = ["EXPANDED"]

F, H, D = "float32", "float16", "float64"
STAGES: tuple[ScoresStage, ...] = ("raw", "capped", "biased", "weights")
SHAPES = {"q": ("n", 4, 3, 8), "k": ("n", 2, 5, 8), "v": ("n", 2, 5, 6)}


def fourier(shape: tuple[Any, ...], axis: int, dtype: str = F, **options: Any) -> Example:
    length = options.pop("length", None)
    note = f"{dtype} {shape} {axis} {length} {sorted(options)}"
    return Example(
        Dft, {"x": (dtype, shape)}, lambda g, x: g.dft(x, axis, length, **options), note=note
    )


def folded(dtype: str, windows: int, image: Any, kernel: Any, **options: Any) -> Example:
    channels = 2
    for n in kernel:
        channels *= n
    return Example(
        Col2Im,
        {"x": (dtype, ("n", channels, windows))},
        lambda g, x: g.col2im(x, image, kernel, **options),
        high=200,
        note=f"{dtype} {image} {kernel} {sorted(options)}",
    )


def deformed(dtype: str, image: Any, kernel: Any, windows: Any, **options: Any) -> Example:
    groups, of_offset = options.get("groups", 1), options.get("offset_groups", 1)
    taps = of_offset
    for n in kernel:
        taps *= n
    masked = options.pop("masked", False)
    inputs = {
        "x": (dtype, ("n", 4, *image)),
        "w": (dtype, (6, 4 // groups, *kernel)),
        "o": (dtype, ("n", taps * len(image), *windows)),
        **({"m": (dtype, ("n", taps, *windows))} if masked else {}),
    }

    def build(g: Graph, x: Value, w: Value, o: Value, *mask: Value) -> Value:
        return g.deform_conv(x, w, o * 1.5, *mask, **options)

    return Example(DeformConv, inputs, build, note=f"{dtype} {image} {kernel} {sorted(options)}")


def attended(stage: ScoresStage) -> Example:
    masks: dict[str, Any] = {"m": ("bool", ("n", 4, 3, 5)), "l": ("int64", ("n",))}

    def build(g: Graph, q: Value, k: Value, v: Value, m: Value, lengths: Value) -> list[Value]:
        narrow = Attention(None, 3, 1, 0, 2.0, None, stage)
        causal = Attention(0.3, None, 0, 1, scores=stage)
        return [*g.push_all(narrow, q, k, v, m, lengths + 2), *g.push_all(causal, q, k, v)]

    inputs = {n: (F, shape) for n, shape in SHAPES.items()} | masks
    return Example(Attention, inputs, build, note=stage)


def pooled(fn: PoolFunction, dtype: str = F, **options: Any) -> Example:
    def build(g: Graph, x: Value) -> Value:
        steps = {"strides": (2, 1, 1, 2), "pads": [(1, 0), (0, 1), (1, 1), (0, 0)]}
        return g.pool(x, fn, (2, 2, 3, 2), **steps, **options)  # type: ignore[arg-type]

    sizes = ({"n": 7}, {"n": 2})
    return Example(Pool, {"x": (dtype, (2, 5, 6, 4, "n"))}, build, sizes, note=f"{fn} {dtype}")


def resized(mode: ResizeMode, dtype: str) -> Example:
    def build(g: Graph, x: Value) -> Value:
        return g.push(Resize((0, 1, 2, 3), (2, 3, 9, 7), mode=mode), x)

    sizes = ({"n": 3}, {"n": 1})
    return Example(Resize, {"x": (dtype, ("n", 2, 5, 6))}, build, sizes, note=f"{mode} {dtype}")


def chosen(dtype: str, classes: int, *, centered: bool = False, threshold: bool = True) -> Example:
    """Boxes that overlap, scores among which there are equal ones."""

    def build(g: Graph, b: Value, s: Value) -> Value:
        sizes = g.concat([g.slice(b, 2, 0, 2), g.add(g.slice(b, 2, 2, 2), g.scalar(2, b.dtype))], 2)
        scores = g.div(g.cast(s, b.dtype), g.scalar(8, b.dtype))
        least = g.scalar(0.3, b.dtype) if threshold else None
        limit, iou = g.scalar(7, DType.INT64), g.scalar(0.4, b.dtype)
        return g.non_max_suppression(sizes, scores, limit, iou, least, centered=centered)

    inputs: dict[str, Any] = {"b": (dtype, (2, "n", 4)), "s": ("int64", (2, classes, "n"))}
    sizes = ({"n": 40}, {"n": 1}, {"n": 0})
    note = f"{dtype} {centered} {threshold}"
    return Example(NonMaxSuppression, inputs, build, sizes, high=9, note=note)


def found(dtype: str, *shape: Any) -> Example:
    return Example(
        NonZero,
        {"x": (dtype, shape)},
        lambda g, x: g.nonzero(x),
        ({"n": 30}, {"n": 1}, {"n": 0}),
        high=2,
        note=f"{dtype} {shape}",
    )


def different(dtype: str, *shape: Any, ordered: bool = True) -> Example:
    """Few different numbers; of floats, one of 0, -0 and NaN each."""

    def build(g: Graph, x: Value) -> list[Value]:
        y = x
        if x.dtype.is_float:
            y = g.unary("floor", x)
            y = g.select(g.compare("gt", y, g.scalar(0, y.dtype)), g.sqrt(g.neg(y)), y)
        return g.unique(y, None if len(shape) > 1 else 0, ordered=ordered)

    sizes = ({"n": 30}, {"n": 1}, {"n": 0})
    note = f"{dtype} {shape} {ordered}"
    return Example(Unique, {"x": (dtype, shape)}, build, sizes, high=9, note=note)


EXPANDED = [
    *(fourier(("n", 9, 2), 1, dtype) for dtype in (F, H, D)),
    fourier(("n", 16, 3, 1), 1, onesided=True),
    fourier(("n", 16, 1), 1, length=9),
    fourier(("n", 5, 2), 1, length=12, inverse=True),
    *(fourier(("n", 5, 2), 1, length=n, inverse=True, onesided=True) for n in (7, 8, 12)),
    fourier(("n", 2048, 1), 1, onesided=True),
    fourier(("n", 1100, 2), 1, length=1200, inverse=True),
    Example(
        Dft,
        {"x": (F, ("n", 100, 1)), "w": (F, (16,))},
        lambda g, x, w: [g.stft(x, 7, w), g.stft(x, 100, None, 33, onesided=False)],
        note="windows of a signal",
    ),
    *(
        Example(Det, {"x": (t, ("n", n, n))}, lambda g, x: g.det(x), note=f"{t} {n}")
        for t, n in ((F, 0), (F, 1), (F, 2), (F, 3), (H, 3), (D, 4))
    ),
    Example(
        Det,
        {"x": ("int64", ("n", 4, 4))},
        lambda g, x: g.det(g.cast(x, DType.FLOAT32)),
        high=2,
        note="many zeros",
    ),
    folded(F, 15, (3, 6), (2, 3), pads=[(1, 0), (0, 1)]),
    folded("int8", 6, (5, 9), (2, 3), strides=(2, 3), dilations=(2, 1)),
    folded(H, 6, (13,), (3,), strides=(2,), pads=[(1, 0)]),
    folded(D, 12, (2, 3, 4), (1, 2, 3), pads=[(0, 0), (0, 0), (1, 0)]),
    deformed(F, (5, 6), (2, 3), (4, 4)),
    deformed(F, (7, 6), (3, 2), (3, 4), strides=(2, 1), dilations=(1, 2), pads=[(1, 0), (0, 0)],
             groups=2, offset_groups=2, masked=True),
    deformed(H, (6,), (3,), (6,), pads=[(1, 1)], offset_groups=4),
    deformed(F, (3, 4, 3), (2, 2, 2), (2, 3, 2), masked=True),
    *(attended(stage) for stage in STAGES),
    chosen(F, 3),
    chosen(D, 1, centered=True, threshold=False),
    chosen(H, 2),
    found("int64", "n"),
    found("bool", 3, "n", 5),
    found(H, "n", 2),
    found("uint8", 1, "n"),
    different("int64", "n"),
    different(F, 2, "n"),
    different("uint8", "n", 3, ordered=False),
    different(H, "n", ordered=False),
    pooled("max"),
    pooled("max", "int8"),
    pooled("sum"),
    pooled("mean", H),
    pooled("mean", count_include_pad=True, ceil=True),
    resized("linear", F),
    resized("cubic", H),
    resized("nearest", "int8"),
]  # fmt: skip
"""Each contains its operation, and no operation that has no expansion."""
