"""One small graph or more for every operation: the table that tests of all operations share."""

from __future__ import annotations

import numpy as np

from kn_graph import DType
from kn_graph.ops import (
    attention,
    conv,
    cumulative,
    deform,
    elementwise,
    fold,
    gather,
    index,
    layout,
    matmul,
    nms,
    nonzero,
    norm,
    pool,
    random,
    recurrent,
    reduce,
    resize,
    roi,
    sample,
    scatter,
    signal,
    sort,
    source,
)
from tests.ops.example import Example

__all__ = ["EXAMPLES", "Example"]

F = "float32"
X = {"x": (F, ("n", 4))}
XY = {"x": (F, ("n", 4)), "y": (F, ("n", 4))}

EXAMPLES = [
    Example(source.Input, X, lambda g, x: x),
    Example(source.Constant, {}, lambda g: g.constant(np.arange(3, dtype=np.float32)), ({},)),
    Example(source.Sizes, X, lambda g, x: g.size_tensor(np.array([x.shape[0], 2], object))),
    Example(
        source.ReadSizes,
        {"x": (F, (4,)), "k": ("int64", (1,))},
        lambda g, x, k: g.broadcast(g.view(x, (4, 1)), (4, *g.read_sizes(k))),
        ({},),
    ),
    Example(layout.View, X, lambda g, x: g.view(x, (x.shape[0] * 2, 2))),
    Example(
        layout.Broadcast, {"x": (F, ("n", 1))}, lambda g, x: g.broadcast(x, (2, x.shape[0], 5))
    ),
    Example(layout.Permute, X, lambda g, x: g.permute(x, (1, 0))),
    Example(layout.Slice, X, lambda g, x: x[:, 1:4:2]),
    Example(layout.Slice, X, lambda g, x: x[:2], note="symbolic"),
    Example(layout.Flip, X, lambda g, x: g.flip(x, 1)),
    Example(layout.Concat, XY, lambda g, x, y: g.concat([x, y, x], 0)),
    Example(layout.Pad, X, lambda g, x: g.pad(x, [(1, 2), (0, 3)])),
    Example(layout.Pad, X, lambda g, x: g.pad(x, [(0, 0), (3, 2)], "reflect"), note="reflect"),
    Example(elementwise.Unary, X, lambda g, x: g.unary("leaky_relu", x, alpha=0.1)),
    Example(elementwise.Binary, XY, lambda g, x, y: x * y + 1.0),
    Example(elementwise.Compare, XY, lambda g, x, y: g.compare("lt", x, y)),
    Example(
        elementwise.Select,
        {"c": ("bool", ("n", 4)), **XY},
        lambda g, c, x, y: g.select(c, x, y),
    ),
    Example(elementwise.Cast, X, lambda g, x: g.cast(x, DType.FLOAT16)),
    Example(elementwise.BitCast, X, lambda g, x: g.bit_cast(x, DType.INT32)),
    Example(reduce.Reduce, X, lambda g, x: g.reduce("mean", x, [0])),
    Example(reduce.ArgReduce, X, lambda g, x: g.arg_reduce(x, 1, last=True, keep=True)),
    Example(
        gather.Gather,
        {"x": (F, (3, 4)), "i": ("int64", ("n", 2))},
        lambda g, x, i: g.gather(x, i, 0),
    ),
    Example(
        gather.GatherElements,
        {"x": (F, ("n", 3)), "i": ("int32", ("n", 5))},
        lambda g, x, i: g.gather_elements(x, i, 1),
    ),
    Example(
        gather.GatherND,
        {"x": (F, (3, 3, 2)), "i": ("int64", ("n", 2))},
        lambda g, x, i: g.gather_nd(x, i),
    ),
    Example(
        scatter.ScatterElements,
        {"x": (F, (3, 3)), "i": ("int64", (1, "n")), "u": (F, (1, "n"))},
        lambda g, x, i, u: g.scatter_elements(x, i, u, 0, "add"),
    ),
    Example(
        scatter.ScatterND,
        {"x": (F, (3, 2)), "i": ("int64", ("n", 1)), "u": (F, ("n", 2))},
        lambda g, x, i, u: g.scatter_nd(x, i, u, "max"),
    ),
    Example(reduce.ReduceTo, {"x": (F, ("n", 4))}, lambda g, x: g.reduce_to("sum", x, (1, 4))),
    Example(reduce.Det, {"x": (F, ("n", 2, 2))}, lambda g, x: g.det(x)),
    Example(cumulative.Cumulative, X, lambda g, x: g.cumulative("sum", x, 0, reverse=True)),
    Example(index.Iota, X, lambda g, x: g.iota(x.shape[0] * 2 + 1)),
    Example(sort.TopK, X, lambda g, x: g.top_k(x, 3)),
    Example(nonzero.NonZero, {"x": ("int64", ("n", 4))}, lambda g, x: g.nonzero(x)),
    Example(nonzero.Unique, {"x": ("int64", ("n",))}, lambda g, x: g.unique(x)),
    Example(
        nms.NonMaxSuppression,
        {"b": (F, (1, "n", 4)), "s": (F, (1, 2, "n"))},
        lambda g, b, s: g.non_max_suppression(
            b, s, g.scalar(2, DType.INT64), g.scalar(0.5, DType.FLOAT32)
        ),
    ),
    Example(
        nms.KeptBoxes,
        {"b": (F, (2, "n", 4)), "c": ("bool", (2, 3, "n"))},
        lambda g, b, c: g.push(
            nms.KeptBoxes(),
            b,
            g.broadcast(g.iota(b.shape[1]), c.shape),
            c,
            g.scalar(2, DType.INT64),
            g.scalar(0.5, DType.FLOAT32),
        ),
    ),
    Example(random.Random, X, lambda g, x: g.random("normal", (x.shape[0], 3))),
    Example(
        matmul.MatMul,
        {"x": (F, (2, "n", 4)), "y": (F, (4, 3))},
        lambda g, x, y: x @ y,
    ),
    Example(
        matmul.MatMul,
        {"x": ("int8", ("n", 4)), "y": ("int8", (4, 3))},
        lambda g, x, y: g.matmul(x, y, out_dtype=DType.INT32),
        note="int8",
    ),
    Example(
        conv.Conv,
        {"x": (F, ("n", 4, 7, 8)), "w": (F, (6, 2, 3, 2)), "b": (F, (6,))},
        lambda g, x, w, b: g.conv(
            x, w, b, strides=(2, 1), dilations=(1, 2), pads=[(1, 0), (2, 1)], groups=2
        ),
    ),
    Example(
        conv.ConvTranspose,
        {"x": (F, (2, 4, "n")), "w": (F, (4, 3, 3))},
        lambda g, x, w: g.conv_transpose(x, w, strides=(2,), pads=[(1, 0)], output_padding=(1,)),
        sizes=({"n": 3}, {"n": 1}),
    ),
    Example(
        deform.DeformConv,
        {"x": (F, ("n", 2, 5, 5)), "w": (F, (3, 2, 2, 2)), "o": (F, ("n", 8, 4, 4))},
        lambda g, x, w, o: g.deform_conv(x, w, o),
    ),
    Example(
        pool.Pool,
        {"x": (F, (1, 2, "n", 5))},
        lambda g, x: g.pool(x, "max", (2, 2), strides=(2, 2), pads=[(1, 1), (0, 1)], ceil=True),
        sizes=({"n": 5}, {"n": 2}),
    ),
    Example(norm.Softmax, X, lambda g, x: [g.softmax(x), g.log_softmax(x, 0)]),
    Example(norm.Norm, X, lambda g, x: g.norm(x, [1], 1e-5)),
    Example(
        attention.Attention,
        {"q": (F, (2, 4, "n", 8)), "k": (F, (2, 2, 5, 8)), "v": (F, (2, 2, 5, 6))},
        lambda g, q, k, v: g.attention(q, k, v, causal=True),
    ),
    Example(
        recurrent.Recurrent,
        {"x": (F, ("n", 2, 3)), "w": (F, (1, 16, 3)), "r": (F, (1, 16, 4))},
        lambda g, x, w, r: g.recurrent("lstm", x, w, r),
    ),
    Example(
        resize.Resize,
        {"x": (F, (1, 2, "n", 4))},
        lambda g, x: [
            g.resize(x, [2, 3], scales=[2.0, 0.6], nearest="ceil"),
            g.resize(x, [2, 3], [x.shape[2] * 3, 7], mode="cubic", antialias=True),
        ],
    ),
    Example(
        resize.Resize,
        {"x": (F, (1, 2, "n", 4)), "s": (F, (2,))},
        lambda g, x, s: g.resize(x, [2, 3], scales=g.unary("exp", s), mode="linear"),
        note="run-time",
    ),
    Example(
        sample.GridSample,
        {"x": (F, ("n", 2, 4, 5)), "grid": (F, ("n", 3, 2, 2))},
        lambda g, x, grid: [
            g.grid_sample(x, grid, padding="reflection"),
            g.grid_sample(x, grid, in_elements=True),
        ],
    ),
    Example(
        roi.RoiAlign,
        {"x": (F, (3, 2, 6, 5)), "r": (F, ("n", 4)), "i": ("int64", ("n",))},
        lambda g, x, r, i: g.roi_align(x, r, i, (2, 3), samples=2),
    ),
    Example(
        roi.MaxRoiPool,
        {"x": (F, (1, 2, 6, 5)), "r": (F, ("n", 4))},
        lambda g, x, r: g.max_roi_pool(x, g.pad(r, [(0, 0), (1, 0)]), (2, 3), scale=2.0),
    ),
    Example(
        fold.Col2Im,
        {"x": (F, ("n", 12, 15))},
        lambda g, x: g.col2im(x, (3, 6), (2, 3), pads=[(1, 0), (0, 1)]),
        sizes=({"n": 2}, {"n": 0}),
    ),
    Example(
        signal.Dft,
        {"x": (F, ("n", 6, 1))},
        lambda g, x: [g.dft(x, 1, onesided=True), g.stft(x, 2, None, 4)],
    ),
]
