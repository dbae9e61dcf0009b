"""Random groups of lines that optimizers look for, as exporters write them, and near-misses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kn_graph import DType
from tests.fuzz.maker import Maker

__all__ = ["PATTERNS"]

Family = Callable[[Maker], None]


def chain(m: Maker, x: str | None, *steps: str) -> str | None:
    """Apply templates one after another: `{0}` is the last result, `{1}` the first operand."""
    first = x
    for step in steps:
        if x is None or first is None:
            return None
        x = m.add(step, x, first)
    return x


def affine_chain(m: Maker) -> None:
    """Scales and shifts by numbers and by vectors."""
    x = m.floats(least=1)
    for _ in range(m.number(2, 4)):
        if x is None:
            return
        shape = m.shape(x)
        width = m.one_of([(), (), shape[-1:], (*shape[:1], *(1,) * (len(shape) - 1))])
        fn = m.one_of(["mul", "add", "sub", "div"])
        kind = "positive" if fn == "div" else "normal"
        operands = [x, m.weights(m.dtype(x), width, kind)]
        if fn in ("mul", "sub") and m.chance(0.3):
            operands.reverse()
        x = m.add(f"g.{fn}({{0}}, {{1}})", *operands)


def clamps(m: Maker) -> None:
    """Minima and maxima in a row, with ranges that overlap or not, and relus between."""
    x = m.floats()
    for _ in range(m.number(2, 4)):
        if x is None:
            return
        bound = m.one_of([-1.0, 0.0, 0.5, 1.0, 6.0, np.nan, np.inf])
        c = m.constant(np.array(bound).astype(m.dtype(x).numpy))
        pair = (c, x) if m.chance(0.3) else (x, c)
        x = m.add(f"g.{m.one_of(['minimum', 'maximum'])}({{0}}, {{1}})", *pair)
        if x is not None and m.chance(0.3):
            x = m.add("g.relu({0})", x)


def cancelling(m: Maker) -> None:
    """What undoes itself, and what only nearly does."""
    x = m.floats(least=1)
    if x is None:
        return
    rank = m.rank(x)
    order = [int(a) for a in m.rng.permutation(rank)]
    back = [order.index(a) for a in range(rank)] if m.chance(0.7) else order
    middle = m.one_of(["g.relu({0})", "{0} * 2.0", "g.tanh({0})", "{0} + 0.5", "-{0}"])
    options = [
        (f"g.permute({{0}}, {order})", middle, f"g.permute({{0}}, {back})"),
        ("-{0}", "-{0}"),
        ("g.unsqueeze({0}, [0])", middle, "g.squeeze({0}, [0])"),
        ("g.flip({0}, 0)", middle, "g.flip({0}, 0)"),
        ("g.concat([{0}, {0}], 0)", middle, f"g.slice({{0}}, 0, 0, {m.shape(x)[0]})"),
        ("g.concat([{0}, {0}], 0)", "{0}[1:]", middle),
        ("g.cast({0}, DType.FLOAT64)", middle, f"g.cast({{0}}, DType.{m.dtype(x).name})"),
        ("{0} + 0.0", "{0} * 1.0", "{0} - 0.0", "{0} / 1.0", "{0} ** 1.0"),
        ("0.0 + {0}", "1.0 * {0}", "g.maximum({0}, {0})", "{0} * 0.0"),
        ("g.exp({0})", "g.log({0})"),
        ("g.sqrt({0})", "{0} * {0}"),
        ("{0} ** 2.0", "{0} ** 0.5"),
        ("{0} - {1}", "{0} + {1}"),
    ]
    chain(m, x, *m.one_of(options))


def moved_layout(m: Maker) -> None:
    """Layout changes before and after arithmetic with constants of matching shapes."""
    x = m.floats(least=2)
    if x is None:
        return
    y = m.add("g.transpose({0})", x)
    if y is None:
        return
    c = m.weights(m.dtype(y), [n if m.chance(0.5) else 1 for n in m.shape(y)])
    y = m.add(f"g.{m.one_of(['add', 'mul', 'maximum'])}({{0}}, {{1}})", y, c)
    chain(m, y, m.one_of(["g.transpose({0})", "g.relu({0})", "g.reduce('sum', {0}, [0])"]),
          m.one_of(["g.flatten({0}, 1)", "{0}[None]", "-{0}"]))  # fmt: skip


def layer_norm(m: Maker) -> None:
    """Layer and RMS norm written out, with scale and shift."""
    x = m.floats(least=2)
    if x is None:
        return
    last = m.rank(x) - 1
    axes = [last] if m.chance(0.8) else [last - 1, last]
    centred: str | None = x
    if m.chance(0.7):
        mean = m.add(f"g.reduce('mean', {{0}}, {axes}, keep=True)", x)
        centred = m.add("{0} - {1}", x, mean) if mean else None
    if centred is None:
        return
    power = m.one_of(["{0} * {0}", "{0} ** 2.0", "g.unary('square', {0})"])
    variance = chain(m, centred, power, f"g.reduce('mean', {{0}}, {axes}, keep=True)", "{0} + 1e-5")
    if variance is None:
        return
    if m.chance(0.5):
        root = m.add("g.sqrt({0})", variance)
        y = m.add("{0} / {1}", centred, root) if root else None
    else:
        root = m.add(m.one_of(["g.unary('rsqrt', {0})", "1.0 / g.sqrt({0})"]), variance)
        y = m.add("{0} * {1}", centred, root) if root else None
    for fn in ("mul", "add"):
        if y is not None and m.chance(0.7):
            y = m.add(f"g.{fn}({{0}}, {{1}})", y, m.weights(m.dtype(y), m.shape(y)[-1:]))


def activations(m: Maker) -> None:
    """Activations written out."""
    x = m.floats()
    options = [
        ("g.sigmoid({0})", "{0} * {1}"),
        ("g.unary('erf', {0} / 1.4142135381698608)", "{0} + 1.0", "{1} * {0}", "{0} * 0.5"),
        ("g.unary('erf', {0} * 0.70710677)", "{0} + 1.0", "({1} * 0.5) * {0}"),
        ("{0} ** 3.0", "{0} * 0.044715 + {1}", "g.tanh({0} * 0.7978845608)", "{0} + 1.0",
         "{0} * {1}", "{0} * 0.5"),
        ("{0} + 3.0", "g.relu({0})", "g.minimum({0}, g.scalar(6.0, {0}.dtype))", "{0} / 6.0",
         "{0} * {1}"),
        ("g.unary('softplus', {0})", "g.tanh({0})", "{0} * {1}"),
        ("g.exp(-{0})", "{0} + 1.0", "1.0 / {0}"),
        ("g.sigmoid({0} * 1.702)", "{0} * {1}"),
        ("g.unary('hard_sigmoid', {0})", "{0} * {1}"),
        ("g.sigmoid({0})", "{0} * {0}"),
        ("g.exp({0})", "{0} + 1.0", "g.log({0})"),
    ]  # fmt: skip
    chain(m, x, *m.one_of(options))


def written_softmax(m: Maker) -> None:
    """Softmax and its logarithm written out."""
    x = m.floats(least=1)
    if x is None:
        return
    axis = m.rank(x) - 1
    start = "{0}" if m.chance(0.3) else f"{{0}} - g.reduce('max', {{0}}, [{axis}], keep=True)"
    total = f"g.reduce('sum', {{0}}, [{axis}], keep=True)"
    if m.chance(0.7):
        shifted = m.add(start, x) if start != "{0}" else x
        chain(m, shifted, "g.exp({0})", f"{{0}} / {total}")
    else:
        chain(m, x, f"g.softmax({{0}}, {axis})", "g.log({0})")


def written_attention(m: Maker) -> None:
    """Attention as exporters write it: products, scale, mask, softmax."""
    heads, s, t, d = m.one_of([1, 2]), m.one_of(["n", 3]), m.one_of(["m", 2]), m.one_of([2, 4])
    q = m.new_input(DType.FLOAT32, (2, heads, s, d), "normal")
    k = m.new_input(DType.FLOAT32, (2, heads, t, d), "normal")
    v = m.new_input(DType.FLOAT32, (2, heads, t, m.one_of([d, 3])), "normal")
    k_t = m.add("g.transpose({0})", k)
    if k_t is None:
        return
    scores = m.add(m.one_of(["{0} @ {1}", "({0} * 0.5) @ {1}"]), q, k_t)
    scores = chain(m, scores, m.one_of(["{0} * 0.5", "{0} / 2.0", "{0} + 0.0"]))
    if scores is not None and m.chance(0.5):
        mask = m.weights(DType.FLOAT32, (1, 1, *m.shape(scores)[2:]), "normal")
        scores = m.add("{0} + {1}", scores, mask)
    weights = chain(m, scores, "g.softmax({0}, -1)")
    out = m.add("{0} @ {1}", weights, v) if weights is not None else None
    if out is not None and m.chance(0.6):
        merged = "g.view({0}, (*{0}.shape[:2], {0}.shape[2] * {0}.shape[3]))"
        chain(m, out, "g.permute({0}, (0, 2, 1, 3))", merged)


def sibling_products(m: Maker) -> None:
    """Several products with one left operand, used apart or together."""
    x = m.floats(least=2)
    if x is None:
        return
    k = m.shape(x)[-1]
    made = [
        m.add("{0} @ {1}", x, m.weights(m.dtype(x), (k, m.number(1, 3))))
        for _ in range(m.number(2, 3))
    ]
    names = [n for n in made if n is not None]
    if len(names) == len(made) and m.chance(0.5):
        m.add("g.concat([{0}, {1}], -1)", *names[:2])
    elif names and m.chance(0.5):
        m.add("{0}[..., -1:, :]" if m.chance(0.5) else "{0}[..., -1, :]", names[0])


def constant_part(m: Maker) -> None:
    """Arithmetic on constants alone."""
    shape = [m.number(0, 3) for _ in range(m.number(0, 2))]
    c = m.constant(m.rng.standard_normal(shape).astype(np.float32))
    y = chain(m, c, m.one_of(["{0} * 2.0", "g.exp({0})"]), "{0} + {1}",
              m.one_of(["g.reduce('sum', {0})", "{0}[None]", "g.tanh({0})"]))  # fmt: skip
    x = m.floats()
    if x is not None and y is not None and m.dtype(x) is DType.FLOAT32:
        m.add("g.mul({0}, {1})", x, y)


def same_twice(m: Maker) -> None:
    """One value read several times by what could be fused with it."""
    x = m.floats()
    if x is None:
        return
    y = m.add(m.one_of(["g.relu({0})", "{0} * 2.0", "g.sigmoid({0})"]), x)
    if y is None:
        return
    chain(m, y, m.one_of(["{0} + {0}", "{0} * {0}", "{0} - {0}"]), "{0} + {1}")
    m.add("g.maximum({0}, {1})", x, y)


PATTERNS: dict[Family, int] = {
    affine_chain: 4,
    clamps: 3,
    cancelling: 5,
    moved_layout: 3,
    layer_norm: 2,
    activations: 3,
    written_softmax: 2,
    written_attention: 1,
    sibling_products: 1,
    constant_part: 1,
    same_twice: 2,
}
"""Families by weight."""
