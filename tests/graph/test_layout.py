"""Layout methods: chains of them are those of NumPy, and what changes nothing is no node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.errors import ShapeError
from kn_graph.ops.layout import Broadcast, Concat, Flip, Pad, Permute, Slice, View

F32 = np.float32


def run(g: Graph, value: Value, **feeds: Any) -> Any:
    """Evaluate one value."""
    name = f"out{len(g.outputs)}"
    g.output(name, value)
    return cpu_eval_graph(g, feeds)[name]


def ramp(*shape: int, dtype: Any = F32) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def kinds(g: Graph) -> list[str]:
    return [type(n.op).__name__ for n in g.nodes]


# ---- layout methods -------------------------------------------------------------------------


@st.composite
def layout_steps(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, Any, Any]]]:
    """A shape, and a chain of (method, its arguments, the same with NumPy)."""
    start = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    a = ramp(*start)
    steps: list[tuple[str, Any, Any]] = []
    for _ in range(draw(st.integers(1, 8))):
        make = draw(st.sampled_from(LAYOUT))
        step = make(draw, a)
        if step is not None and step[2](a).size <= 4096:
            steps.append(step)
            a = step[2](a)
    return start, steps


def axis_of(draw: st.DrawFn, a: Any) -> int:
    return draw(st.integers(-a.ndim, a.ndim - 1))


def permute_step(draw: st.DrawFn, a: Any) -> Any:
    axes = draw(st.permutations(range(a.ndim)))
    return "permute", (axes,), lambda x: x.transpose(axes)


def slice_step(draw: st.DrawFn, a: Any) -> Any:
    if not a.ndim:
        return None
    axis = axis_of(draw, a)
    bound = st.none() | st.integers(-6, 6)
    start, stop = draw(bound), draw(bound)
    step = draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
    where = [slice(None)] * a.ndim
    where[axis] = slice(start, stop, step)
    return "slice_bounds", (axis, start, stop, step), lambda x: x[tuple(where)]


def flip_step(draw: st.DrawFn, a: Any) -> Any:
    if not a.ndim:
        return None
    axis = axis_of(draw, a)
    return "flip", (axis,), lambda x: np.flip(x, axis)


def repeat_step(draw: st.DrawFn, a: Any) -> Any:
    if not a.ndim:
        return None
    axis, count = axis_of(draw, a), draw(st.integers(0, 3))
    reps = [1] * a.ndim
    reps[axis] = count
    if draw(st.booleans()):
        return "repeat", (axis, count), lambda x: np.tile(x, reps)
    return "repeat_interleave", (axis, count), lambda x: np.repeat(x, count, axis)


def unsqueeze_step(draw: st.DrawFn, a: Any) -> Any:
    if a.ndim > 5:
        return None
    axis = draw(st.integers(-a.ndim - 1, a.ndim))
    return "unsqueeze", ([axis],), lambda x: np.expand_dims(x, axis)


def squeeze_step(draw: st.DrawFn, a: Any) -> Any:
    ones = [i for i, n in enumerate(a.shape) if n == 1]
    if not ones:
        return None
    axis = draw(st.sampled_from(ones))
    return "squeeze", ([axis],), lambda x: x.squeeze(axis)


def broadcast_step(draw: st.DrawFn, a: Any) -> Any:
    shape = tuple(draw(st.integers(0, 3)) if n == 1 else n for n in a.shape)
    shape = (*draw(st.lists(st.integers(1, 3), max_size=2)), *shape)
    return "broadcast", (shape,), lambda x: np.broadcast_to(x, shape)


def pad_step(draw: st.DrawFn, a: Any) -> Any:
    if not a.ndim:
        return None
    mode: Any = draw(st.sampled_from(["constant", "edge", "reflect"]))
    pads = []
    for n in a.shape:
        low, high = -n, 3
        if mode != "constant":
            low, high = 0, 3 if mode == "edge" and n else max(0, n - 1)
        before = draw(st.integers(low, high))
        pads.append((before, draw(st.integers(max(low, -n - min(before, 0)), high))))

    def pad(x: Any) -> Any:
        cuts = tuple(
            slice(max(0, -b), n - max(0, -a)) for n, (b, a) in zip(x.shape, pads, strict=True)
        )
        return np.pad(x[cuts], [(max(0, b), max(0, a)) for b, a in pads], mode=mode)

    return "pad", (pads, mode), pad


def reshape_step(draw: st.DrawFn, a: Any) -> Any:
    if a.size == 0:
        return None
    shape, rest = [], a.size
    for _ in range(draw(st.integers(0, 3))):
        n = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        shape.append(n)
        rest //= n
    shape.insert(draw(st.integers(0, len(shape))), -1)
    return "reshape", (shape,), lambda x: x.reshape(shape)


def flatten_step(draw: st.DrawFn, a: Any) -> Any:
    axis = draw(st.integers(0, a.ndim))
    shape = (int(np.prod(a.shape[:axis])), int(np.prod(a.shape[axis:])))
    return "flatten", (axis,), lambda x: x.reshape(shape)


LAYOUT = [
    permute_step, slice_step, flip_step, repeat_step, unsqueeze_step, squeeze_step, broadcast_step,
    pad_step, reshape_step, flatten_step,
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(layout_steps())
def test_chains_of_layout_methods_are_those_of_numpy(chain: Any) -> None:
    start, steps = chain
    g = Graph()
    value, expected = g.input("x", "float32", start), ramp(*start)
    for method, arguments, numpy_step in steps:
        value = getattr(g, method)(value, *arguments)
        expected = numpy_step(expected)
        assert value.shape == expected.shape
    g.output("y", value)
    g.verify()
    np.testing.assert_array_equal(cpu_eval_graph(g, {"x": ramp(*start)})["y"], expected)


@settings(max_examples=100, deadline=None)
@given(layout_steps())
def test_chains_of_layout_methods_fold_the_contents_of_small_integers(chain: Any) -> None:
    start, steps = chain
    g = Graph()
    value, expected = g.constant(ramp(*start, dtype=np.int64)), ramp(*start, dtype=np.int64)
    for method, arguments, numpy_step in steps:
        value = getattr(g, method)(value, *arguments)
        expected = numpy_step(expected)
    np.testing.assert_array_equal(run(g, value), expected)


def test_splits_stacks_and_concats() -> None:
    g = Graph()
    x = g.input("x", "float32", [2, 5])
    parts = g.split(x, 1, [2, 0, 3])
    assert [p.shape for p in parts] == [(2, 2), (2, 0), (2, 3)]
    a = ramp(2, 5)
    np.testing.assert_array_equal(run(g, g.concat(parts, 1), x=a), a)
    np.testing.assert_array_equal(run(g, g.stack([x, x], -1), x=a), np.stack([a, a], -1))
    np.testing.assert_array_equal(run(g, g.expand(x[:, :1], (3, 1, 4)), x=a),
                                  np.broadcast_to(a[:, :1], (3, 2, 4)))  # fmt: skip


def test_what_changes_nothing_is_no_node() -> None:
    g = Graph()
    x = g.input("x", "float32", ["n", 3])
    n = g.symbols["n"]
    for same in (
        g.view(x, (n, 3)),
        g.reshape(x, (-1, 3)),
        g.broadcast(x, (n, 3)),
        g.permute(x, (0, 1)),
        g.slice(x, 0, 0, n),
        x[:],
        x[...],
        g.pad(x, [(0, 0), (0, 0)]),
        g.concat([x], 0),
        g.repeat(x, 1, 1),
        g.cast(x, DType.FLOAT32),
        g.squeeze(g.unsqueeze(x, [0]), [0]),
    ):
        assert same is x or kinds(g)[-1] == "View"
    assert not {"Permute", "Slice", "Broadcast", "Pad", "Concat", "Cast"} & set(kinds(g))


@pytest.mark.parametrize(
    ("op", "operand"),
    [
        (Permute((0,)), (2, 3)),
        (Flip(2), (2, 1)),
        (Pad(((0, 0),), "edge"), (2, 3)),
        (Slice(2, 0, 3), (2, 3)),
        (Concat(2), (2, 3)),
        (View((2, 4)), (2, 3)),
        (Broadcast((2, 3, 1)), (2, 3)),
    ],
)
def test_operations_that_change_nothing_are_checked_all_the_same(op: Any, operand: Any) -> None:
    g = Graph()
    with pytest.raises(ShapeError):
        g.push(op, g.input("x", "float32", operand))
