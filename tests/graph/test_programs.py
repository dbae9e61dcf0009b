"""Random programs, optimized, specialised and copied: results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, Value, cpu_eval_graph, optimize_graph
from kn_graph.ops.source import Input
from kn_graph.transform import copy_graph

F32 = np.float32


def ramp(*shape: int, dtype: Any = F32) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def assert_same(want: dict[str, Any], got: dict[str, Any]) -> None:
    assert list(want) == list(got)
    for name, x in want.items():
        assert x.dtype == got[name].dtype
        np.testing.assert_allclose(got[name], x, rtol=1e-6, err_msg=name)


# ---- optimize -------------------------------------------------------------------------------

UNARY = ["relu", "neg", "exp", "abs", "sigmoid", "floor"]


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    count = draw(st.integers(1, 14))
    kind = st.sampled_from(
        ["unary", "binary", "permute", "view", "slice", "concat", "reduce", "matmul", "constant",
         "cast", "flip", "pad"]
    )  # fmt: skip
    number = st.integers(0, 50)
    return [(draw(kind), draw(number), draw(number), draw(number)) for _ in range(count)]


def build(program: list[tuple[str, int, int, int]], n: int | str) -> Graph:
    """Values are all [n, 4] or [4, n]; what does not fit is skipped."""
    g = Graph("random")
    values = [g.input("x", "float32", [n, 4]), g.input("y", "float32", [n, 4])]
    for kind, a, b, c in program:
        x, y = values[a % len(values)], values[b % len(values)]
        values.append(step(g, kind, x, y, c))
    for i, v in enumerate(values[-3:]):
        g.output(f"out{i}", v)
    return g


def step(g: Graph, kind: str, x: Value, y: Value, c: int) -> Value:
    y = y if x.shape == y.shape else g.transpose(y)
    y = y if x.shape == y.shape else x
    match kind:
        case "unary":
            return g.unary(UNARY[c % len(UNARY)], g.minimum(x, g.scalar(3.0, DType.FLOAT32)))
        case "binary":
            return g.binary(["add", "sub", "mul", "max", "min"][c % 5], x, y)
        case "permute":
            return g.transpose(x)
        case "view":
            return g.view(g.view(x, (*x.shape, 1)), (1, *x.shape))[0]
        case "slice":
            return g.concat([x[:, :1], x[:, 1:]], 1) if x.shape[1] == 4 else g.flip(x, 1)
        case "concat":
            return g.split(g.concat([x, y], 0), 0, [x.shape[0], y.shape[0]])[c % 2]
        case "reduce":
            fn: Any = ["max", "mean", "sum"][c % 3]
            return x - g.reduce(fn, x, [1], keep=True)
        case "matmul":
            return (x @ g.transpose(x)) @ y * 0.01
        case "constant":
            return x * float(c % 3) + (0.0 if c % 2 else 1.5)
        case "cast":
            return g.cast(g.cast(x, DType.FLOAT64), DType.FLOAT32)
        case "flip":
            return g.flip(g.flip(x, c % 2), 0)
        case _:
            return g.pad(x, [(1, 0), (0, 0)])[1:]


@settings(max_examples=150, deadline=None)
@given(programs())
def test_optimized_and_specialized_programs_give_the_same(program: Any) -> None:
    g = build(program, "n")
    for n in (1, 3):
        rng = np.random.default_rng(n)
        feeds = {name: rng.normal(size=(n, 4)).astype(F32) for name in "xy"}
        with np.errstate(all="ignore"):
            want = cpu_eval_graph(g, feeds)
            optimized = optimize_graph(g)
            optimized.verify()
            others = [
                optimized,
                optimize_graph(optimized),
                g.specialize({"n": n}),
                optimized.specialize({"n": n}),
                optimize_graph(g.specialize({"n": n})),
                build(program, n),
                g.extract(["x", "y"], list(g.outputs)),
                copy_graph(g, {}),
            ]
            for other in others:
                other.verify()
                got = cpu_eval_graph(other, feeds)
                for name, x in want.items():
                    np.testing.assert_allclose(got[name], x, rtol=2e-4, atol=2e-4)


def test_optimizing_keeps_the_interface() -> None:
    g = Graph("model")
    x = g.input("x", "float32", ["n", 3])
    g.input("unused", "int64", [2])
    scale = g.input("scale", "float32", [3], default=ramp(3))
    g.output("y", x * scale + 0.0)
    g.output("same", x)
    g.metadata["producer"] = "test"
    optimized = optimize_graph(g)
    assert optimized.sealed
    assert [(v.name, str(v.type)) for v in optimized.inputs] == [
        (v.name, str(v.type)) for v in g.inputs
    ]
    assert list(optimized.outputs) == ["y", "same"]
    assert optimized.metadata == g.metadata
    assert list(optimized.symbols) == ["n"]
    assert sum(isinstance(n.op, Input) for n in optimized.nodes) == 3
    feeds: dict[str, Any] = {"x": ramp(2, 3), "unused": np.zeros(2, np.int64)}
    assert_same(cpu_eval_graph(g, feeds), cpu_eval_graph(optimized, feeds))
