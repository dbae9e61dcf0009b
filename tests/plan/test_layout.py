"""Layout arithmetic against NumPy's own views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from kn_graph.dim import Size, symbol
from kn_plan.layout import StridedLayout

N, M, S = symbol("n"), symbol("m"), symbol("s")
Array = np.ndarray[Any, Any]


def elements(layout: StridedLayout, base: Array, **numbers: int) -> Array:
    """Return the elements of a layout of a flat array."""
    symbols = {str(d): d.as_symbol for d in (N, M, S)}
    bound: Any = layout.at({s: numbers[n] for n, s in symbols.items() if s and n in numbers})
    if 0 in bound.sizes:
        return np.empty(bound.sizes, base.dtype)
    low, high = bound.span
    assert 0 <= low <= high < base.size
    strides = [s * base.itemsize for s in bound.strides]
    return as_strided(base[bound.offset :], bound.sizes, strides)


def base_of(shape: tuple[int, ...]) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.int64)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((), "[]:[]+0"),
        ((N, 3), "[n, 3]:[3, 1]+0"),
        ((2, N, M), "[2, n, m]:[n*m, m, 1]+0"),
    ],
)
def test_rows_lie_behind_one_another(sizes: tuple[Size, ...], text: str) -> None:
    layout = StridedLayout.contiguous(sizes)
    assert str(layout) == text
    assert layout.is_contiguous


def test_each_operation_is_that_of_numpy() -> None:
    shape = (4, 3, 5)
    base = base_of(shape)
    x, layout = base.reshape(shape), StridedLayout.contiguous(shape)
    pairs: list[tuple[StridedLayout, Array]] = [
        (layout.permute((2, 0, 1)), x.transpose(2, 0, 1)),
        (layout.slice(1, 1, 2), x[:, 1:3]),
        (layout.slice(2, 0, 3, 2), x[:, :, ::2]),
        (layout.flip(0), x[::-1]),
        (layout.flip(0).slice(0, 1, 2).flip(0), x[1:3]),
        (layout.slice(0, 2, 1).broadcast((7, 3, 5)), np.broadcast_to(x[2:3], (7, 3, 5))),
        (layout.slice(0, 4, 0), x[4:]),
    ]
    for got, want in pairs:
        np.testing.assert_array_equal(elements(got, base), want)


def test_a_size_of_1_or_another_repeats_where_it_is_1() -> None:
    layout = StridedLayout.contiguous((N, 2)).broadcast((M, 2))
    np.testing.assert_array_equal(elements(layout, base_of((1, 2)), n=1, m=3), [[0, 1]] * 3)
    np.testing.assert_array_equal(
        elements(layout, base_of((3, 2)), n=3, m=3), base_of((6,)).reshape(3, 2)
    )


def test_heads_are_cut_for_nothing_and_joined_for_nothing_where_there_is_one_row() -> None:
    cut = StridedLayout.contiguous((1, S, 512)).view((1, S, 8, 64)).always
    assert cut is not None
    assert str(cut.permute((0, 2, 1, 3))) == "[1, 8, s, 64]:[512*s, 64, 512, 1]+0"
    joined = StridedLayout.contiguous((1, 8, S, 64)).permute((0, 2, 1, 3)).view((1, S, 512))
    assert joined.always is None
    assert [str(g) for g in joined.gaps] == ["64*s-64"]


def test_a_gap_that_may_be_0_is_named() -> None:
    viewed = StridedLayout.contiguous((N, 4)).slice(0, 0, N).slice(1, 0, S).view((N * S,))
    assert viewed.always is None
    assert [str(g) for g in viewed.gaps] == ["-s+4"]
    assert viewed.layout is not None
    base = base_of((3, 4))
    np.testing.assert_array_equal(elements(viewed.layout, base, n=3, s=4), base)


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        (StridedLayout.contiguous((4, 6)).permute((1, 0)), (24,)),
        (StridedLayout.contiguous((4, 1)).broadcast((4, 3)), (12,)),
        (StridedLayout.contiguous((N, M)).permute((1, 0)), (N * M,)),
        (StridedLayout.contiguous((4, 6)).slice(1, 0, 5), (20,)),
    ],
)
def test_what_has_gaps_is_copied(layout: StridedLayout, sizes: tuple[Size, ...]) -> None:
    viewed = layout.view(sizes)
    assert viewed.always is None
    assert viewed.layout is None or viewed.gaps


@pytest.mark.parametrize("sizes", [(0, 3), (N, 0), (5, 0, M)])
def test_nothing_is_a_view_of_nothing(sizes: tuple[Size, ...]) -> None:
    assert StridedLayout.contiguous((3, 0)).permute((1, 0)).view(sizes).always is not None


# ---- random chains --------------------------------------------------------------------------


@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[Any, ...]]]:
    """Draw a shape, and operations with their arguments."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    steps: list[tuple[Any, ...]] = []
    current = list(shape)
    for _ in range(draw(st.integers(1, 6))):
        axis = draw(st.integers(0, len(current) - 1))
        kind = draw(st.sampled_from(["permute", "flip", "slice", "repeat", "merge", "split"]))
        if kind == "permute":
            axes = draw(st.permutations(range(len(current))))
            steps.append((kind, tuple(axes)))
            current = [current[a] for a in axes]
        elif kind == "flip":
            steps.append((kind, axis))
        elif kind == "slice":
            step = draw(st.integers(1, 2))
            length = draw(st.integers(1, (current[axis] + step - 1) // step))
            start = draw(st.integers(0, current[axis] - (length - 1) * step - 1))
            steps.append((kind, axis, start, length, step))
            current[axis] = length
        elif kind == "repeat" and current[axis] == 1:
            current[axis] = draw(st.integers(2, 3))
            steps.append((kind, tuple(current)))
        elif kind == "merge" and axis + 1 < len(current):
            current[axis : axis + 2] = [current[axis] * current[axis + 1]]
            steps.append(("view", tuple(current)))
        elif kind == "split" and current[axis] % 2 == 0:
            current[axis : axis + 1] = [2, current[axis] // 2]
            steps.append(("view", tuple(current)))
    return shape, steps


@settings(max_examples=300, deadline=None)
@given(chains())
def test_random_chains_agree_with_numpy(chain: Any) -> None:
    """Views are views wherever NumPy can make one, and hold the same elements."""
    shape, steps = chain
    base = base_of(shape)
    x, layout = base.reshape(shape), StridedLayout.contiguous(shape)
    for kind, *args in steps:
        if kind == "permute":
            x, layout = x.transpose(args[0]), layout.permute(args[0])
        elif kind == "flip":
            x, layout = np.flip(x, args[0]), layout.flip(args[0])
        elif kind == "slice":
            axis, start, length, step = args
            index = [slice(None)] * x.ndim
            index[axis] = slice(start, start + (length - 1) * step + 1, step)
            x, layout = x[tuple(index)], layout.slice(axis, start, length, step)
        elif kind == "repeat":
            x, layout = np.broadcast_to(x, args[0]), layout.broadcast(args[0])
        else:
            viewed = layout.view(args[0]).always
            try:
                x = np.reshape(x, args[0], copy=False)
            except ValueError:
                assert viewed is None
                return
            assert viewed is not None
            layout = viewed
        np.testing.assert_array_equal(elements(layout, base), x)
