"""Random lines: scalar functions, layout, reductions, indexing."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from kn_graph import DType
from kn_graph.dtype import Kind
from kn_graph.scalar import SCALAR_TABLE
from tests.fuzz.maker import Maker

__all__ = ["BASICS"]

Family = Callable[[Maker], None]

JUMPING = frozenset(
    {"sign", "floor", "ceil", "trunc", "round_even", "isnan", "isinf", "is_inf", "thresholded_relu"}
    | {"shrink", "mod", "fmod"}
)
"""Functions that jump: applied to exact values only, since a rounding before them may matter."""

FLOAT_UNARY = tuple(
    f.name
    for f in SCALAR_TABLE.values()
    if f.arity == 1 and Kind.FLOAT in f.kinds and f.signature.pattern == "T->T"
)
FLOAT_BINARY = ("add", "add", "sub", "mul", "mul", "div", "min", "max", "pow", "prelu", "fmod")
INT_UNARY = ("neg", "abs", "sign", "square", "bit_not")
INT_BINARY = (
    *("add", "sub", "mul", "div", "mod", "fmod", "min", "max"),
    *("bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"),
)
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
DTYPES = (DType.FLOAT32,) * 9 + (DType.FLOAT16, DType.FLOAT64, DType.BFLOAT16)
INTS = (DType.INT64, DType.INT64, DType.INT32, DType.INT8, DType.UINT8)


# ---- scalar functions -----------------------------------------------------------------------


def unary(m: Maker) -> None:
    """One function of floats, of the whole scalar table."""
    fn = m.one_of(FLOAT_UNARY)
    x = m.floats()
    if x is None or (fn in JUMPING and not m.exact(x)):
        return
    params = SCALAR_TABLE[fn].params
    given = "".join(f", {n}={m.one_of([0.5, 1.0, 2.0, 0.25])!r}" for n in params if m.chance(0.5))
    m.add(f"g.unary({fn!r}, {{0}}{given})", x)


def other_operand(m: Maker, x: str) -> str:
    """Return something that broadcasts with a variable: a constant, mostly, or a variable."""
    shape, dtype = m.shape(x), m.dtype(x)
    if m.chance(0.3):
        same = m.pick(lambda n: m.dtype(n) is dtype and m.shape(n) == shape)
        return x if same is None else same
    if m.chance(0.2):
        fitting = m.pick(lambda n: m.dtype(n) is dtype and m.rank(n) <= len(shape))
        if fitting is not None:
            return fitting
    if m.chance(0.4):
        numbers = [0, 1, -1, 2, 0.5, 3, 1e-3, 100, 8] if dtype.is_float else [0, 1, 2, 3]
        return m.constant(np.array(m.one_of(numbers)).astype(dtype.numpy))
    kept = [n if m.chance(0.5) else 1 for n in shape]
    return m.weights(dtype, kept[m.number(0, len(kept)) :] if m.chance(0.4) else kept)


def binary(m: Maker) -> None:
    """Two floats, broadcast."""
    x, fn = m.floats(), m.one_of(FLOAT_BINARY)
    if x is None:
        return
    y = other_operand(m, x)
    if fn in JUMPING and not (m.exact(x) and m.exact(y)):
        return
    pair = (y, x) if m.chance(0.3) else (x, y)
    m.add(f"g.binary({fn!r}, {{0}}, {{1}})", *pair)


def operators(m: Maker) -> None:
    """Python's operators with numbers, and the methods with names of their own."""
    x = m.floats()
    if x is None:
        return
    number = m.one_of([0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 0.25, -7.5])
    template = m.one_of(
        [f"{{0}} * {number}", f"{{0}} + {number}", f"{number} - {{0}}", f"{{0}} / {number}",
         "-{0}", f"{number} / {{0}}", f"{{0}} ** {number}", "g.relu({0})", "g.sigmoid({0})",
         "g.tanh({0})", "g.gelu({0})", "g.sqrt({0})", "g.exp({0})", "g.log({0})", "g.neg({0})"]
    )  # fmt: skip
    m.add(template, x)


def methods(m: Maker) -> None:
    """Methods for arithmetic on two values."""
    x = m.floats()
    if x is not None:
        fn = m.one_of(["add", "sub", "mul", "div", "minimum", "maximum"])
        m.add(f"g.{fn}({{0}}, {{1}})", x, other_operand(m, x))


def integers(m: Maker) -> None:
    """Integer arithmetic, which wraps."""
    x = m.pick(lambda n: m.dtype(n).is_int)
    if x is None:
        return
    if m.chance(0.3):
        m.add(f"g.unary({m.one_of(INT_UNARY)!r}, {{0}})", x)
    else:
        m.add(f"g.binary({m.one_of(INT_BINARY)!r}, {{0}}, {{1}})", x, other_operand(m, x))


def truths(m: Maker) -> None:
    """Comparisons, logic, selection."""
    b = m.pick(lambda n: m.dtype(n) is DType.BOOL)
    x = m.numbers()
    if b is not None and m.chance(0.3):
        m.add("g.logical_not({0})", b)
    elif b is not None and m.chance(0.3):
        fn = m.one_of(["logical_and", "logical_or", "logical_xor"])
        m.add(f"g.binary({fn!r}, {{0}}, {{1}})", b, other_operand(m, b))
    elif b is not None and x is not None and m.chance(0.7):
        m.add("g.select({0}, {1}, {2})", b, x, other_operand(m, x))
    elif x is not None and m.exact(x):
        y = other_operand(m, x)
        if m.exact(y):
            m.add(f"g.compare({m.one_of(COMPARISONS)!r}, {{0}}, {{1}})", x, y)


def casts(m: Maker) -> None:
    """Conversions; floats to integers where they are small."""
    x = m.pick(lambda n: True)
    if x is None:
        return
    target = m.one_of([*DTYPES, *INTS, DType.BOOL, DType.FLOAT8E4M3FN])
    source = m.dtype(x)
    if source.is_float and not target.is_float:
        array = m.arrays[x].astype(np.float64)
        if not m.exact(x) or not (np.abs(array) < 100).all():
            return
    if target is DType.FLOAT8E4M3FN and not m.exact(x):
        return
    if m.chance(0.1) and m.exact(x) and source in (DType.FLOAT32, DType.INT32):
        other = DType.INT32 if source is DType.FLOAT32 else DType.FLOAT32
        m.add(f"g.bit_cast({{0}}, DType.{other.name})", x)
        return
    name = m.add(f"g.cast({{0}}, DType.{target.name})", x)
    if name is not None and target is DType.FLOAT8E4M3FN:
        m.add("g.cast({0}, DType.FLOAT32)", name)


# ---- layout ---------------------------------------------------------------------------------


def factors(m: Maker, n: int) -> list[int]:
    """Split a number into factors."""
    found = []
    while n > 1:
        options = [d for d in range(2, n + 1) if n % d == 0]
        d = m.one_of(options)
        found.append(d)
        n //= d
    if m.chance(0.2):
        found.insert(m.number(0, len(found)), 1)
    return found


def reshape(m: Maker) -> None:
    """Views, with numbers or through sizes of the operand."""
    x = m.pick(lambda n: True)
    if x is None:
        return
    shape = m.shape(x)
    if 0 in shape or m.chance(0.5):
        options = ["g.flatten({0}, 1)", "g.view({0}, {0}.shape)", "g.reshape({0}, (-1,))",
                   "g.unsqueeze({0}, [0])", "g.unsqueeze({0}, [-1])", "{0}[None]", "{0}[..., None]",
                   "g.view({0}, (*{0}.shape, 1))", "g.flatten({0}, 0)"]  # fmt: skip
        ones = [a for a, n in enumerate(shape) if n == 1]
        options += [f"g.squeeze({{0}}, [{m.one_of(ones)}])"] if ones else []
        if len(shape) >= 2 and 0 not in shape:
            options.append("g.reshape({0}, ({0}.shape[0], -1))")
            options.append("g.view({0}, ({0}.shape[0] * {0}.shape[1], *{0}.shape[2:]))")
        m.add(m.one_of(options), x)
        return
    m.add(f"g.view({{0}}, {tuple(factors(m, prod(shape)))!r})", x)


def move(m: Maker) -> None:
    """Permutations, flips, broadcasts, repetitions."""
    x = m.pick(lambda n: m.rank(n) >= 1)
    if x is None:
        return
    rank = m.rank(x)
    axis, count = m.number(-rank, rank - 1), m.number(1, 3)
    order = tuple(int(a) for a in m.rng.permutation(rank))
    options = [
        f"g.permute({{0}}, {order!r})",
        f"g.permute({{0}}, {order!r})",
        f"g.flip({{0}}, {axis})",
        f"g.broadcast({{0}}, ({count}, *{{0}}.shape))",
        f"g.expand({{0}}, ({count}, *(1,) * {rank}))",
        f"g.repeat({{0}}, {axis}, {count})",
        f"g.repeat_interleave({{0}}, {axis}, {count})",
    ]
    options += ["g.transpose({0})"] * 2 if rank >= 2 else []
    m.add(m.one_of(options), x)


def cut(m: Maker) -> None:
    """Slices, splits, indices."""
    x = m.pick(lambda n: m.rank(n) >= 1)
    if x is None:
        return
    axis = m.number(0, m.rank(x) - 1)
    n = m.shape(x)[axis]
    start = m.number(0, n)
    length, step = m.number(0, n - start), m.one_of([1, 1, 2])
    before = ":, " * axis
    low, high = m.number(-n - 1, n + 1), m.one_of([None, m.number(-n - 1, n + 1)])
    options = [
        f"g.slice({{0}}, {axis}, {start}, {(length + step - 1) // step}, {step})",
        f"g.slice_bounds({{0}}, {axis}, {low}, {high}, {m.one_of([1, 2, -1, -2])})",
        f"{{0}}[{before}{low}:{'' if high is None else high}]",
        f"{{0}}[{before}::-1]",
        f"g.slice({{0}}, {axis}, 0, {{0}}.shape[{axis}])",
    ]
    if n:
        options.append(f"{{0}}[{before}{m.number(-n, n - 1)}]")
    if m.chance(0.2):
        m.add_all(f"g.split({{0}}, {axis}, [{start}, {n - start}])", x)
    else:
        m.add(m.one_of(options), x)


def join(m: Maker) -> None:
    """Concatenations of values of one type, and of parts of one value."""
    x = m.pick(lambda n: m.rank(n) >= 1)
    if x is None:
        return
    axis, shape, dtype = m.number(0, m.rank(x) - 1), m.shape(x), m.dtype(x)

    def fits(n: str) -> bool:
        other = m.shape(n)
        if m.dtype(n) is not dtype or len(other) != len(shape):
            return False
        return all(a == axis or p == q for a, (p, q) in enumerate(zip(shape, other, strict=True)))

    others = [m.pick(fits) or x for _ in range(m.number(1, 2))]
    if m.chance(0.2):
        m.add(f"g.stack([{{0}}, {{0}}], {axis})", x)
        return
    names = ", ".join(f"{{{i}}}" for i in range(len(others) + 1))
    m.add(f"g.concat([{names}], {axis})", x, *others)


def pad(m: Maker) -> None:
    """Pads of all modes, negative ones too."""
    x = m.pick(lambda n: m.rank(n) >= 1)
    if x is None:
        return
    mode = m.one_of(["constant", "constant", "edge", "reflect", "wrap"])
    low = -1 if mode == "constant" else 0
    pads = [(m.number(low, 2), m.number(low, 2)) for _ in m.shape(x)]
    if mode == "constant" and m.chance(0.5):
        value = m.constant(np.array(m.number(-2, 2)).astype(m.dtype(x).numpy))
        m.add(f"g.pad({{0}}, {pads!r}, value={{1}})", x, value)
    else:
        m.add(f"g.pad({{0}}, {pads!r}, {mode!r})", x)


# ---- reductions, indices --------------------------------------------------------------------


def reduction(m: Maker) -> None:
    """Sums and the like, running sums, extremes."""
    x = m.numbers()
    if x is None:
        return
    rank = m.rank(x)
    axes = sorted({m.number(0, rank - 1) for _ in range(m.number(1, 2))}) if rank else []
    fn, axis = m.one_of(["sum", "mean", "prod", "max", "min"]), m.number(0, max(rank - 1, 0))
    keep = m.chance(0.6)
    options = [f"g.reduce({fn!r}, {{0}}, {axes!r}, keep={keep})"] * 4
    options.append(f"g.reduce({fn!r}, {{0}})")
    if rank:
        way = f"exclusive={m.chance(0.3)}, reverse={m.chance(0.3)}"
        options.append(f"g.cumulative({m.one_of(['sum', 'prod'])!r}, {{0}}, {axis}, {way})")
        shape = tuple(1 if a in axes else n for a, n in enumerate(m.shape(x)))
        options.append(f"g.reduce_to({fn!r}, {{0}}, {shape!r})")
        if m.exact(x):
            options.append(f"g.arg_reduce({{0}}, {axis}, largest={m.chance(0.5)}, keep={keep})")
    m.add(m.one_of(options), x)


def any_all(m: Maker) -> None:
    """Reductions of truths."""
    x = m.pick(lambda n: m.dtype(n) is DType.BOOL)
    if x is not None:
        m.add(f"g.reduce({m.one_of(['any', 'all', 'max'])!r}, {{0}}, keep={m.chance(0.5)})", x)


def sorting(m: Maker) -> None:
    """What depends on order: of exact values only."""
    x = m.numbers(least=1)
    if x is None or not m.exact(x):
        return
    axis = m.number(0, m.rank(x) - 1)
    n = m.shape(x)[axis]
    roll = m.number(0, 4)
    if roll <= 1:
        k = m.number(0, n)
        m.add_all(f"g.top_k({{0}}, {k}, {axis}, largest={m.chance(0.5)})", x)
    elif m.dtype(x).is_int:
        m.add_all(f"g.unique({{0}}, {m.one_of([None, axis])})", x)
    elif roll == 2:
        m.add("g.nonzero({0})", x)
    else:
        condition = m.constant(m.rng.random(n) < 0.6)
        m.add(f"g.compress({{0}}, {{1}}, {axis})", x, condition)


def indexing(m: Maker) -> None:
    """Gathers and scatters by constants or inputs."""
    x = m.pick(lambda n: m.rank(n) >= 1 and 0 not in m.shape(n))
    if x is None:
        return
    shape = m.shape(x)
    axis = m.number(0, len(shape) - 1)
    n = shape[axis]

    def numbers(size: Any) -> str:
        array = m.rng.integers(-n, n, size)
        return m.constant(array.astype(m.one_of([np.int64, np.int32])))

    roll = m.number(0, 5)
    if roll <= 1:
        indices = numbers([(), (2,), (1,), (2, 2), (0,)][m.number(0, 4)])
        m.add(f"g.gather({{0}}, {{1}}, {axis})", x, indices)
    elif roll == 2:
        m.add(f"g.gather_elements({{0}}, {{1}}, {axis})", x, numbers(shape))
    elif roll == 3:
        index = m.constant(m.rng.integers(0, shape[0], (2, 1)))
        m.add("g.gather_nd({0}, {1})", x, index)
    elif m.dtype(x) is not DType.BOOL:
        fn = m.one_of(["none", "add", "max", "min"])
        updates = m.weights(m.dtype(x), shape)
        if roll == 4:
            call = f"g.scatter_elements({{0}}, {{1}}, {{2}}, {axis}, {fn!r})"
            m.add(call, x, numbers(shape), updates)
        else:
            index = m.constant(m.rng.integers(0, shape[0], (1, 1)))
            rows = m.weights(m.dtype(x), (1, *shape[1:]))
            m.add(f"g.scatter_nd({{0}}, {{1}}, {{2}}, {fn!r})", x, index, rows)


def made_of_sizes(m: Maker) -> None:
    """Tensors that follow from sizes, and random numbers."""
    x = m.pick(lambda n: m.rank(n) >= 1)
    if x is None:
        return
    axis = m.number(0, m.rank(x) - 1)
    n = m.shape(x)[axis]
    options = [
        f"g.iota({{0}}.shape[{axis}])",
        f"g.size_tensor(np.array([{{0}}.shape[{axis}], 2], object))",
        f"g.random('uniform', ({{0}}.shape[{axis}], 2))",
        f"g.random('normal', (2, {{0}}.shape[{axis}]))",
        f"g.cosine_window({n + 1}, [0.5, -0.5], DType.FLOAT32, periodic={m.chance(0.5)})",
    ]
    m.add(m.one_of(options), x)


BASICS: dict[Family, int] = {
    unary: 8,
    binary: 10,
    operators: 8,
    methods: 3,
    integers: 3,
    truths: 4,
    casts: 4,
    reshape: 6,
    move: 6,
    cut: 5,
    join: 4,
    pad: 2,
    reduction: 5,
    any_all: 1,
    sorting: 2,
    indexing: 4,
    made_of_sizes: 1,
}
"""Families by weight."""
