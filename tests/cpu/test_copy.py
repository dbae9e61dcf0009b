"""Copies between layouts against NumPy."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.copy import concat_parts, copy_call, pad_copies
from kn_graph.dim import evaluate, symbol
from kn_graph.ops.layout import PadMode
from kn_plan.layout import StridedLayout
from tests.cpu.rows import layout_of, run

Array = np.ndarray[Any, Any]

TYPES = [np.uint8, np.uint16, np.uint32, np.uint64]


def check_copy(out: Array, x: Array) -> None:
    """Copy natively into a view."""
    want = x.copy()
    run(copy_call(layout_of(out), layout_of(x), x.itemsize), out, x)
    np.testing.assert_array_equal(out, want)


def numbered(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.arange(1, 1 + int(np.prod(shape))).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axes", list(permutations(range(4))))
def test_every_order_of_four_axes(axes: tuple[int, ...], dtype: Any) -> None:
    for shape in ((2, 3, 5, 7), (3, 17, 1, 35), (2, 33, 66, 3), (1, 70, 2, 131)):
        x = numbered(shape, dtype).transpose(axes)
        check_copy(np.zeros(x.shape, dtype), x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000, 70001])
def test_runs_fills_and_strides(n: int, dtype: Any) -> None:
    wide = numbered((2 * n + 3,), dtype)
    for x in (
        wide[:n],
        wide[3 : 3 + 2 * n : 2][:n],
        wide[:n][::-1],
        np.broadcast_to(wide[1], (n,)),
    ):
        frame = np.zeros(2 * n + 5, dtype)
        for out in (frame[1 : n + 1], frame[1 : 2 * n + 1 : 2], frame[: n + 1][1:][::-1]):
            frame[:] = 77
            check_copy(out, x)
            out[...] = 77
            assert (frame == 77).all(), "written outside"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("channels", [1, 2, 3, 8, 16, 24, 67])
def test_channels_first_to_last_and_back(channels: int, dtype: Any) -> None:
    x = numbered((2, channels, 14, 13), dtype)
    last = np.zeros((2, 14, 13, channels), dtype)
    check_copy(last, x.transpose(0, 2, 3, 1))
    check_copy(np.zeros_like(x), last.transpose(0, 3, 1, 2))


def test_windows_of_a_larger_tensor_and_repeated_axes() -> None:
    big = numbered((5, 40, 50), np.float32)
    target = np.zeros((3, 4, 60, 45), np.float32)
    x = np.broadcast_to(big[1:4, 2:38:3, 5:50:2].transpose(0, 2, 1)[:, None], (3, 4, 23, 12))
    check_copy(target[:, :, 5:28, 7:19], x)
    inside = target[:, :, 5:28, 7:19].sum()
    assert target.sum() == inside


def test_empty_tensors_and_scalars() -> None:
    check_copy(np.zeros((3, 0, 2), np.float32), np.zeros((3, 0, 2), np.float32))
    check_copy(np.zeros((), np.float32), np.array(3, np.float32))


@st.composite
def views(draw: Any) -> tuple[Array, Array]:
    """Draw two views of equal shape, over memory with gaps, in any order and direction."""
    rank = draw(st.integers(0, 5))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 9, 17]), min_size=rank, max_size=rank))
    dtype = draw(st.sampled_from(TYPES))
    made = []
    for fill in (0, 1):
        order = draw(st.permutations(range(rank)))
        steps = draw(st.lists(st.sampled_from([1, 1, 2, -1]), min_size=rank, max_size=rank))
        base = numbered(tuple(sizes[a] * abs(steps[a]) for a in order), dtype) * fill
        picked: Any = (*(slice(None, None, steps[a]) for a in order), ...)
        view = base[picked]
        made.append(view.transpose([order.index(a) for a in range(rank)]))
    return made[0], made[1]


@settings(max_examples=150, deadline=None)
@given(views())
def test_any_strides(pair: tuple[Array, Array]) -> None:
    out, x = pair
    check_copy(out, x)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize(
    "pads", [((0, 0), (1, 2), (3, 0)), ((2, 1), (0, 0), (0, 5)), ((1, 1), (2, 2), (3, 3))]
)
def test_pad_writes_each_element_once(mode: PadMode, pads: Any) -> None:
    x = numbered((3, 4, 6), np.float32)
    out = np.zeros([b + n + a for n, (b, a) in zip(x.shape, pads, strict=True)], np.float32)
    value = np.array(-9, np.float32)
    written = 0
    for copy in pad_copies(layout_of(out), layout_of(x), pads, mode):
        source = {"x": x, "value": value, "out": out}[copy.source].reshape(-1)
        target = out.reshape(-1)[copy.write.offset :]
        call = copy_call(copy.write, copy.read, 4)
        run(call, target, source[copy.read.offset :])
        written += copy.write.numel
    constant: Any = {"constant_values": -9} if mode == "constant" else {}
    np.testing.assert_array_equal(out, np.pad(x, pads, mode=mode, **constant))
    assert written == out.size


def test_concat_parts_lie_behind_one_another() -> None:
    parts = [numbered((2, n, 5), np.uint16) for n in (1, 4, 0, 3)]
    out = np.zeros((2, 8, 5), np.uint16)
    places = concat_parts(layout_of(out), 1, [layout_of(p) for p in parts])
    for part, place in zip(parts, places, strict=True):
        run(copy_call(place, layout_of(part), 2), out.reshape(-1)[place.offset :], part)
    np.testing.assert_array_equal(out, np.concatenate(parts, 1))


def test_numbers_may_be_symbolic() -> None:
    n = symbol("n")
    x = StridedLayout.contiguous((n, 64)).permute((1, 0))
    call = copy_call(StridedLayout.contiguous((64, n)), x, 4)
    fixed = copy_call(StridedLayout.contiguous((64, 5000)), StridedLayout((64, 5000), (1, 64)), 4)
    env = {next(iter(n.symbols)): 5000}
    assert [evaluate(s, env) for s in call.numbers] == list(fixed.numbers)
    assert evaluate(call.units, env) == fixed.units


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("run_length", [2, 3, 4, 8])
def test_short_runs_in_longer_rows(run_length: int, dtype: Any) -> None:
    for row in range(run_length, run_length + 4):
        x = numbered((5, 33, row), dtype)[..., :run_length]
        check_copy(np.zeros((33, 5, run_length), dtype), x.transpose(1, 0, 2))
        check_copy(np.zeros((33, 5, row), dtype)[..., :run_length], x.transpose(1, 0, 2))
