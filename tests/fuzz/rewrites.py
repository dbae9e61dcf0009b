"""Random groups of lines around single rewrites: layout that moves, choices, narrow types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kn_graph import DType
from tests.fuzz.layers import image, keywords, window
from tests.fuzz.maker import Maker
from tests.fuzz.patterns import chain

__all__ = ["REWRITES"]

Family = Callable[[Maker], None]


def permutation(m: Maker, rank: int) -> str:
    """Return a permutation of axes as text."""
    return repr([int(a) for a in m.rng.permutation(rank)])


def layout_chain(m: Maker) -> None:
    """Several layout changes of one kind or of two, one after another."""
    x = m.pick(lambda n: m.rank(n) >= 2)
    if x is None:
        return
    steps = m.number(2, 4)
    makers: list[Callable[[str], str]] = [
        lambda v: f"g.permute({{0}}, {permutation(m, m.rank(v))})",
        lambda v: _slice(m, v),
        lambda v: f"g.flip({{0}}, {m.number(0, m.rank(v) - 1)})",
        lambda v: m.one_of(["g.flatten({0}, 1)", "{0}[None]", "g.reshape({0}, (-1,))"]),
        lambda v: "g.broadcast({0}, (2, *{0}.shape))",
        lambda v: "g.squeeze({0}, [0])" if 1 in m.shape(v)[:1] else "{0}[:1]",
        lambda v: f"g.pad({{0}}, {[(m.number(0, 1), m.number(0, 1)) for _ in m.shape(v)]})",
    ]
    chosen = [m.one_of(makers) for _ in range(2)]
    name: str | None = x
    for _ in range(steps):
        if name is None or m.rank(name) < 1:
            return
        name = m.add(m.one_of(chosen)(name), name)


def _slice(m: Maker, v: str) -> str:
    axis = m.number(0, m.rank(v) - 1)
    n = m.shape(v)[axis]
    start = m.number(0, n)
    step = m.one_of([1, 1, 2])
    length = m.number(0, (n - start + step - 1) // step)
    return f"g.slice({{0}}, {axis}, {start}, {length}, {step})"


def parts(m: Maker) -> None:
    """A value cut and joined again, in order or not."""
    x = m.pick(lambda n: m.rank(n) >= 1)
    if x is None:
        return
    axis = m.number(0, m.rank(x) - 1)
    n = m.shape(x)[axis]
    at = m.number(0, n)
    made = m.add_all(f"g.split({{0}}, {axis}, [{at}, {n - at}])", x)
    if len(made) == 2:
        pair = made if m.chance(0.6) else made[::-1]
        y = m.add(f"g.concat([{{0}}, {{1}}], {axis})", *pair)
        if y is not None and m.chance(0.5):
            m.add(f"g.concat([{{0}}, {{1}}], {axis})", y, x)


def padded_layer(m: Maker) -> None:
    """A pad before a convolution, a pool, or another pad."""
    x = image(m, spatial=m.number(1, 2))
    axes = m.rank(x) - 2
    pads = [(0, 0), (0, 0), *((m.number(0, 2), m.number(0, 2)) for _ in range(axes))]
    value = m.constant(np.array(m.one_of([0, 0, 0, 1, -np.inf])).astype(m.dtype(x).numpy))
    y = m.add(f"g.pad({{0}}, {pads!r}, value={{1}})", x, value)
    if y is None:
        return
    given = keywords(window(m, axes))
    roll = m.number(0, 2)
    if roll == 0:
        w = m.weights(m.dtype(x), (2, m.shape(x)[1], *(1,) * axes), "normal")
        m.add(f"g.conv({{0}}, {{1}}{given})", y, w)
    elif roll == 1:
        fn = m.one_of(["max", "mean", "sum"])
        count = f", count_include_pad={m.chance(0.5)}" if fn == "mean" else ""
        m.add(f"g.pool({{0}}, {fn!r}, {[2] * axes!r}{count}{given})", y)
    else:
        m.add(f"g.pad({{0}}, {pads!r}, value={{1}})", y, value)


def permuted_operands(m: Maker) -> None:
    """Arithmetic on values that were permuted in the same way, or not quite."""
    x = m.floats(least=2)
    if x is None:
        return
    order = permutation(m, m.rank(x))
    c = m.weights(m.dtype(x), m.shape(x))
    a = m.add(f"g.permute({{0}}, {order})", x)
    b = m.add(f"g.permute({{0}}, {order if m.chance(0.7) else permutation(m, m.rank(x))})", c)
    if a is not None and b is not None:
        y = m.add(f"g.{m.one_of(['add', 'mul', 'maximum'])}({{0}}, {{1}})", a, b)
        chain(m, y, m.one_of(["g.reduce('sum', {0}, [0])", "g.softmax({0}, 1)", "g.relu({0})"]))


def inner_softmax(m: Maker) -> None:
    """A softmax behind a permutation or a view, which is undone after."""
    x = m.floats(least=2)
    if x is None:
        return
    rank = m.rank(x)
    order = [int(a) for a in m.rng.permutation(rank)]
    back = [order.index(a) for a in range(rank)]
    log = m.one_of(["softmax", "log_softmax"])
    if m.chance(0.5):
        chain(
            m, x, f"g.permute({{0}}, {order})", f"g.{log}({{0}}, -1)", f"g.permute({{0}}, {back})"
        )
    else:
        rows = "g.view({0}, ({0}.shape[0] * {0}.shape[1], *{0}.shape[2:]))"
        chain(m, x, rows, f"g.{log}({{0}}, -1)", "g.view({0}, {1}.shape)")


def chosen_activation(m: Maker) -> None:
    """Activations as choices: leaky relu, prelu, elu and others, and what only looks like them."""
    x = m.floats(least=1)
    if x is None or not m.exact(x):
        return
    zero = m.constant(np.zeros((), m.dtype(x).numpy))
    bound = zero if m.chance(0.7) else m.constant(np.array(20).astype(m.dtype(x).numpy))
    test = m.add(f"g.compare({m.one_of(['gt', 'ge', 'lt', 'le'])!r}, {{0}}, {{1}})", x, bound)
    slope = m.weights(m.dtype(x), m.shape(x)[-1:] if m.chance(0.4) else ())
    templates = ["{0} * {1}", "(g.exp({0}) - 1.0) * {1}", "g.unary('softplus', {0})", "{0} * 0.0"]
    other = m.add(m.one_of(templates), x, slope)
    if test is None or other is None:
        return
    if m.chance(0.3):
        negated = m.add("g.logical_not({0})", test)
        test = negated or test
    pair = (x, other) if m.chance(0.5) else (other, x)
    y = m.add("g.select({0}, {1}, {2})", test, *pair)
    if m.chance(0.3):
        chain(m, y, m.one_of(["g.transpose({0})", "{0}[None]"]) if m.rank(x) > 1 else "{0}[None]")
    if m.chance(0.3):
        relus = m.add("g.relu({0})", x), m.add("g.relu(-{0})", x)
        if None not in relus:
            m.add("{0} - {2} * {1}", str(relus[0]), str(relus[1]), slope)


def truth_tests(m: Maker) -> None:
    """Truths compared with truths, and chosen by truths."""
    b = m.pick(lambda n: m.dtype(n) is DType.BOOL)
    if b is None:
        x = m.pick(lambda n: m.dtype(n).is_float and m.exact(n))
        b = m.add("g.compare('gt', {0}, {0} * 0.0)", x) if x and m.exact(x) else None
    if b is None:
        return
    yes, no = m.constant(np.array(True)), m.constant(np.array(False))
    options = [
        f"g.compare({m.one_of(['eq', 'ne'])!r}, {{0}}, {{1}})",
        "g.select({0}, {1}, {2})",
        "g.select({0}, {2}, {1})",
        "g.select(g.logical_not({0}), {1}, {0})",
        "g.select({1}, {0}, {2})",
        "g.binary('logical_and', {0}, {1})",
        "g.compare('eq', g.iota(3), g.iota(3))",
    ]
    y = m.add(m.one_of(options), b, yes, no)
    if y is not None:
        m.add("g.cast({0}, DType.FLOAT32)", y)


def nested_reductions(m: Maker) -> None:
    """Reductions of reductions, of permutations, of broadcasts."""
    x = m.numbers(least=2)
    if x is None:
        return
    fn = m.one_of(["sum", "max", "min", "mean", "prod"])
    second = fn if m.chance(0.7) else "max"
    first = m.one_of(
        [f"g.reduce({fn!r}, {{0}}, [0])", f"g.reduce({fn!r}, {{0}}, [1], keep=True)",
         f"g.permute({{0}}, {permutation(m, m.rank(x))})", "g.broadcast({0}, (3, *{0}.shape))"]
    )  # fmt: skip
    chain(m, x, first, f"g.reduce({second!r}, {{0}}, [0], keep={m.chance(0.5)})")


def narrow(m: Maker) -> None:
    """Steps of a narrow type between casts to a wide one."""
    x = m.floats(least=1)
    if x is None:
        return
    narrow_type = m.one_of(["FLOAT16", "BFLOAT16", m.dtype(x).name])
    wide_type = m.one_of(["FLOAT32", "FLOAT64"])
    middle = m.one_of(
        ["{0} ** 2.0", "g.softmax({0}, -1)", "g.norm({0}, [-1], 1e-5)", "{0} * 0.5 + 1.0",
         "g.gelu({0})", "{0} * {0}", "g.relu({0})"]
    )  # fmt: skip
    chain(m, x, f"g.cast({{0}}, DType.{narrow_type})", f"g.cast({{0}}, DType.{wide_type})", middle,
          f"g.cast({{0}}, DType.{narrow_type})")  # fmt: skip


def divided(m: Maker) -> None:
    """Divisions by constants, inverses of roots, softsign, logarithms of sums."""
    x = m.floats(least=1)
    last = m.rank(x) - 1 if x is not None else 0
    options = [
        ("{0} / 4.0",), ("{0} / 3.0",), ("1.0 / g.sqrt({0})",), ("g.unary('reciprocal', {0})",),
        ("g.unary('abs', {0})", "{0} + 1.0", "{1} / {0}"),
        ("g.exp({0})", f"g.reduce('sum', {{0}}, [{last}], keep=True)", "g.log({0})", "{1} - {0}"),
        ("{0} / g.sqrt({0} * {0} + 1.0)",),
    ]  # fmt: skip
    chain(m, x, *m.one_of(options))


def gathered_parts(m: Maker) -> None:
    """Gathers from constants, by constants that were cut or are equal."""
    table = m.constant(m.rng.standard_normal((4, 3)).astype(np.float32))
    if m.chance(0.4):
        table = m.constant(np.full((4, 3), 1.5, np.float32))
    row = m.constant(m.rng.integers(-4, 4, (6,)))
    x = m.new_input(DType.INT64, ("n",))
    index = m.add("g.binary('mod', {0}, g.scalar(4, DType.INT64))", x)
    options = [
        ("g.gather({0}, {1})", table, index or row),
        ("g.gather({0}, {1}[1:4])", table, row),
        ("g.gather({0}, g.iota(3))", table),
        ("g.gather({0}, g.iota(2) * 2)", table),
    ]
    template, *args = m.one_of(options)
    m.add(template, *args)


def scaled_layer(m: Maker) -> None:
    """Scales and shifts before a product or a convolution."""
    x = m.floats(least=2)
    if x is None:
        return
    k = m.shape(x)[-1]
    y = m.add("{0} * {1}", x, m.weights(m.dtype(x), m.one_of([(), (k,)]), "normal"))
    if y is not None and m.chance(0.5):
        y = m.add("{0} + {1}", y, m.weights(m.dtype(x), m.one_of([(), (k,)]), "normal"))
    if y is not None:
        y = m.add("{0} @ {1}", y, m.weights(m.dtype(x), (k, 3), "normal"))
        chain(m, y, "{0} * 0.5", "g.relu({0})")


REWRITES: dict[Family, int] = {
    layout_chain: 5,
    parts: 2,
    padded_layer: 2,
    permuted_operands: 2,
    inner_softmax: 2,
    chosen_activation: 3,
    truth_tests: 2,
    nested_reductions: 2,
    narrow: 2,
    divided: 2,
    gathered_parts: 1,
    scaled_layer: 2,
}
"""Families by weight."""
