"""Random lines: layers of networks, images, signals, quantization, control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kn_graph import DType
from tests.fuzz.maker import Maker
from tests.fuzz.quantized import quantized_layers

__all__ = ["LAYERS"]

Family = Callable[[Maker], None]


def softmaxes(m: Maker) -> None:
    """Softmax and norms."""
    x = m.floats(least=1)
    if x is None:
        return
    rank = m.rank(x)
    axis = m.number(-rank, rank - 1)
    axes = sorted({m.number(0, rank - 1) for _ in range(m.number(1, 2))})
    options = [
        f"g.softmax({{0}}, {axis})",
        f"g.log_softmax({{0}}, {axis})",
        f"g.norm({{0}}, {axes!r}, 1e-5, center={m.chance(0.7)})",
    ]
    m.add(m.one_of(options), x)


def matmul(m: Maker) -> None:
    """Products of matrices, of einsum, with weights or with another value."""
    x = m.floats(least=1)
    if x is None:
        return
    shape, dtype = m.shape(x), m.dtype(x)
    k, n = shape[-1], m.number(1, 4)
    roll = m.number(0, 5)
    if roll <= 2:
        y = m.add("{0} @ {1}", x, m.weights(dtype, (k, n)))
        if y is not None and m.chance(0.5):
            m.add("{0} + {1}", y, m.weights(dtype, (n,)))
    elif roll == 3:
        lead = tuple(s if m.chance(0.6) else 1 for s in shape[:-2])
        m.add("g.matmul({0}, {1})", x, m.weights(dtype, (*lead, k, n)))
    elif roll == 4 and len(shape) >= 2:
        m.add("g.matmul({0}, g.transpose({0}))", x)
    else:
        m.add("g.einsum('...k,nk->...n', {0}, {1})", x, m.weights(dtype, (n, k)))


def wide_matmul(m: Maker) -> None:
    """Products of narrow types with wide results."""
    x = m.pick(lambda n: m.dtype(n) in (DType.INT8, DType.FLOAT16) and m.rank(n) == 2)
    if x is None:
        return
    out = "INT32" if m.dtype(x) is DType.INT8 else "FLOAT32"
    w = m.weights(m.dtype(x), (m.shape(x)[1], 3))
    m.add(f"g.matmul({{0}}, {{1}}, out_dtype=DType.{out})", x, w)


def window(m: Maker, axes: int) -> dict[str, Any]:
    """Return strides, dilations and pads."""
    return {
        "strides": [m.one_of([1, 1, 2]) for _ in range(axes)],
        "dilations": [m.one_of([1, 1, 1, 2]) for _ in range(axes)],
        "pads": [(m.number(0, 1), m.number(0, 1)) for _ in range(axes)],
    }


def keywords(values: dict[str, Any]) -> str:
    """Return `, name=value` for each."""
    return "".join(f", {n}={v!r}" for n, v in values.items())


def image(m: Maker, *, spatial: int | None = None) -> str:
    """Return floats [N, C, *spatial]: a variable, or a new input."""
    axes = m.number(1, 2) if spatial is None else spatial
    x = m.floats(rank=axes + 2)
    if x is not None and 0 not in m.shape(x)[1:] and m.chance(0.8):
        return x
    sizes = [m.number(2, 5) for _ in range(axes)]
    return m.new_input(DType.FLOAT32, (m.one_of(["n", 1, 2]), m.one_of([1, 2, 4]), *sizes))


def conv(m: Maker) -> None:
    """Convolutions, with what models put behind them."""
    x = image(m)
    shape, dtype = m.shape(x), m.dtype(x)
    channels, axes = shape[1], len(shape) - 2
    groups = m.one_of([g for g in (1, 1, 2, channels) if channels % g == 0])
    out = groups * m.number(1, 2)
    kernel = [m.number(1, min(3, max(n, 1))) for n in shape[2:]]
    given = window(m, axes)
    if m.chance(0.25):
        w = m.weights(dtype, (channels, out // groups, *kernel))
        name = m.add(f"g.conv_transpose({{0}}, {{1}}, groups={groups}{keywords(given)})", x, w)
    else:
        w = m.weights(dtype, (out, channels // groups, *kernel))
        bias, args = "", [x, w]
        if m.chance(0.5):
            bias, args = ", {2}", [x, w, m.weights(dtype, (out,))]
        name = m.add(f"g.conv({{0}}, {{1}}{bias}, groups={groups}{keywords(given)})", *args)
    for fn in ("mul", "add"):
        if name is not None and m.chance(0.5):
            c = m.shape(name)[1]
            each = m.weights(dtype, m.one_of([(c, *(1,) * axes), (1, c, *(1,) * axes), ()]))
            name = m.add(f"g.{fn}({{0}}, {{1}})", name, each)
    if name is not None and m.chance(0.5):
        m.add(m.one_of(["g.relu({0})", "g.unary('silu', {0})", "g.sigmoid({0})"]), name)


def pool(m: Maker) -> None:
    """Pools of all kinds."""
    x = image(m)
    axes = m.rank(x) - 2
    kernel = [m.number(1, min(2, max(n, 1))) for n in m.shape(x)[2:]]
    given = window(m, axes)
    ceil = m.chance(0.3)
    if m.chance(0.25) and m.exact(x):
        found = m.add_all(f"g.max_pool_with_indices({{0}}, {kernel!r}, ceil={ceil})", x)
        if found:
            shape = tuple(m.shape(x))
            m.add(f"g.max_unpool({{0}}, {{1}}, {shape!r})", *found)
        return
    fn = m.one_of(["max", "mean", "sum"])
    count = f", count_include_pad={m.chance(0.5)}" if fn == "mean" else ""
    m.add(f"g.pool({{0}}, {fn!r}, {kernel!r}, ceil={ceil}{count}{keywords(given)})", x)


def attention(m: Maker) -> None:
    """Attention with masks, bounds and shared heads."""
    b, heads, s, t, d = m.one_of(["n", 2]), m.one_of([1, 2]), m.one_of(["m", 3]), m.number(1, 4), 4
    shared = m.one_of([1, 2])
    q = m.new_input(DType.FLOAT32, (b, heads * shared, s, d), "normal")
    k = m.new_input(DType.FLOAT32, (b, heads, t, d), "normal")
    v = m.new_input(DType.FLOAT32, (b, heads, t, m.number(1, 4)))
    given: dict[str, Any] = {"causal": m.chance(0.4)}
    if m.chance(0.3):
        given["scale"] = 0.5
    if m.chance(0.2):
        given["softcap"] = 3.0
    if m.chance(0.2):
        given["left"] = 1
    mask: tuple[str, ...] = ()
    if m.chance(0.5):
        dtype = m.one_of([DType.BOOL, DType.FLOAT32])
        mask = (m.weights(dtype, (1, 1, m.shape(q)[2], t)),)
    more = ", {3}" if mask else ""
    m.add(f"g.attention({{0}}, {{1}}, {{2}}{more}{keywords(given)})", q, k, v, *mask)


def resizing(m: Maker) -> None:
    """Resize and sampling."""
    x = image(m, spatial=2)
    if 0 in m.shape(x):
        return
    roll = m.number(0, 4)
    if roll <= 1:
        mode = m.one_of(["nearest", "linear", "cubic"])
        how = m.one_of([f"[{m.number(1, 6)}, {m.number(1, 6)}]", "scales=[2.0, 0.5]"])
        m.add(f"g.resize({{0}}, [2, 3], {how}, mode={mode!r})", x)
    elif roll == 2:
        theta = m.weights(DType.FLOAT32, (m.shape(x)[0], 2, 3), "normal")
        grid = m.add("g.affine_grid({0}, (3, 2))", theta)
        if grid is not None:
            m.add("g.grid_sample({0}, {1})", x, grid)
    elif roll == 3:
        m.add(f"g.center_crop_pad({{0}}, [2, 3], [{m.number(1, 6)}, {m.number(1, 6)}])", x)
    elif m.dtype(x) is DType.FLOAT32:
        rois = m.constant(np.array([[0, 0, 2, 3], [1, 0.5, 3, 2]], np.float32))
        images = m.constant(np.zeros(2, np.int64))
        m.add("g.roi_align({0}, {1}, {2}, (2, 2), samples=2)", x, rois, images)
        regions = m.constant(np.array([[0, 0, 0, 2, 2]], np.float32))
        m.add("g.max_roi_pool({0}, {1}, (1, 2))", x, regions)


def blocks(m: Maker) -> None:
    """Depth to space and back, and windows added up."""
    n = m.one_of(["n", 2])
    first = m.chance(0.5)
    if m.chance(0.4):
        x = m.new_input(DType.FLOAT32, (n, 8, 2, m.one_of(["m", 3])))
        m.add(f"g.depth_to_space({{0}}, 2, depth_first={first})", x)
    elif m.chance(0.5):
        x = m.new_input(DType.FLOAT32, (n, 2, 4, 2))
        m.add(f"g.space_to_depth({{0}}, 2, depth_first={first})", x)
    else:
        x = m.new_input(DType.FLOAT32, (n, 8, 6))
        m.add("g.col2im({0}, (3, 4), (2, 2))", x)


def special_layers(m: Maker) -> None:
    """Layers that are rare in models."""
    n = m.one_of(["n", 2])
    roll = m.number(0, 4)
    if roll == 0:
        x = m.new_input(DType.FLOAT32, (m.one_of(["m", 3]), 2, 3), "normal")
        kind = m.one_of(["rnn", "gru", "lstm"])
        gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind]
        w = m.weights(DType.FLOAT32, (1, gates * 2, 3), "normal")
        r = m.weights(DType.FLOAT32, (1, gates * 2, 2), "normal")
        m.add_all(f"g.recurrent({kind!r}, {{0}}, {{1}}, {{2}})", x, w, r)
    elif roll == 1:
        x = m.new_input(DType.FLOAT32, (n, 2, 2), "normal")
        m.add("g.det({0})", x)
    elif roll == 2:
        x = m.new_input(DType.FLOAT32, (n, m.number(1, 6), 1), "normal")
        m.add(f"g.dft({{0}}, 1, onesided={m.chance(0.5)})", x)
        m.add("g.stft({0}, 1, None, 1)", x)
    elif roll == 3:
        x = m.new_input(DType.FLOAT32, (n, 2, 4, 4), "normal")
        w = m.weights(DType.FLOAT32, (2, 2, 2, 2), "normal")
        o = m.new_input(DType.FLOAT32, (n, 8, 3, 3), "normal")
        m.add("g.deform_conv({0}, {1}, {2})", x, w, o)
    else:
        boxes = m.new_input(DType.FLOAT32, (1, 3, 4), "positive")
        scores = m.new_input(DType.FLOAT32, (1, 2, 3), "positive")
        limit, iou = m.constant(np.array(2)), m.constant(np.array(0.5, np.float32))
        m.add("g.non_max_suppression({0}, {1}, {2}, {3})", boxes, scores, limit, iou)


def quantization(m: Maker) -> None:
    """Integers for floats, and back; only exact floats, since rounding jumps."""
    if m.chance(0.5):
        quantized_layers(m)
        return
    x = m.floats(rank=2)
    if x is None or m.dtype(x) is not DType.FLOAT32 or not m.exact(x):
        return
    if not np.isfinite(m.arrays[x]).all() or 0 in m.shape(x):
        return
    scale = m.constant(np.array(m.one_of([0.5, 0.25, 0.1]), np.float32))
    zero = m.constant(np.array(m.one_of([0, 3, 128]), np.uint8))
    q = m.add("g.quantize({0}, {1}, {2})", x, scale, zero)
    if q is None:
        return
    if m.chance(0.5):
        w = m.weights(DType.INT8, (m.shape(x)[1], 3))
        m.add("g.matmul_integer({0}, {1}, {2})", q, w, zero)
    back = m.add("g.dequantize({0}, {1}, {2})", q, scale, zero)
    if back is not None and m.chance(0.5):
        m.add("g.requantize(g.cast({0}, DType.INT32), {1}, {2}, dtype=DType.UINT8)", q, scale, zero)
    if m.chance(0.2):
        m.add_all("g.dynamic_quantize({0})", x)
    if m.chance(0.2):
        images = m.new_input(DType.UINT8, (1, 2, 4))
        kernel = m.weights(DType.INT8, (2, 2, 2))
        m.add("g.conv_integer({0}, {1}, {2})", images, kernel, zero)


def control(m: Maker) -> None:
    """Branches and loops."""
    x = m.floats(least=1)
    if x is None:
        return
    same = m.pick(lambda n: m.dtype(n) is m.dtype(x) and m.shape(n) == m.shape(x)) or x
    roll = m.number(0, 2)
    if roll == 0:
        condition = m.weights(DType.BOOL, (1,))
        m.add(f"either(g, {{0}}, {{1}}, {{2}}, {m.one_of(['relu', 'exp'])!r})", condition, x, same)
    elif roll == 1:
        m.add_all(f"repeated(g, {{0}}, {{1}}, {m.number(0, 3)})", x, same)
    elif m.shape(x)[0] > 0:
        m.add_all("scanned(g, {0})", x)


LAYERS: dict[Family, int] = {
    softmaxes: 4,
    matmul: 7,
    wide_matmul: 1,
    conv: 5,
    pool: 2,
    attention: 2,
    resizing: 2,
    blocks: 1,
    special_layers: 1,
    quantization: 2,
    control: 2,
}
"""Families by weight."""
