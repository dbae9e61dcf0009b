"""Attention against the NumPy reference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_cpu.attention import attention_call, attention_supported
from kn_graph.dtype import DType
from kn_graph.ops.attention import Attention
from tests.cpu.check import Array, check, normal, stored
from tests.cpu.rows import layout_of

HEADS_OUTSIDE, HEADS_INSIDE, TURNED = (0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)


@dataclass(frozen=True)
class Sizes:
    """Sizes of one attention: batch, heads, heads of keys, queries, keys, sizes of both."""

    b: int = 2
    h: int = 3
    hk: int = 3
    s: int = 65
    t: int = 70
    d: int = 20
    dv: int = 24

    def qkv(self) -> tuple[Array, Array, Array]:
        """Return operands."""
        q = normal((self.b, self.h, self.s, self.d), 1)
        k = normal((self.b, self.hk, self.t, self.d), 2)
        return q, k, normal((self.b, self.hk, self.t, self.dv), 3)


def check_attention(
    op: Attention,
    qkv: tuple[Array, Array, Array],
    *,
    bias: Array | None = None,
    lengths: Array | None = None,
    orders: tuple[tuple[int, ...], ...] = (HEADS_INSIDE,) * 4,
) -> None:
    q, k, v = (stored(x, o) for x, o in zip(qkv, orders, strict=False))
    out = stored(np.full((*q.shape[:3], v.shape[3]), 7, np.float32), orders[3])
    layouts = (layout_of(out), layout_of(q), layout_of(k), layout_of(v))
    call = attention_call(
        op, *layouts, bias=None if bias is None else layout_of(bias),
        bias_dtype=None if bias is None else DType.from_numpy(bias.dtype),
    )  # fmt: skip
    masks = [m for m in (bias, lengths) if m is not None]
    check(op, call, out, q, k, v, bias, lengths, operands=[*qkv, *masks])


@pytest.mark.parametrize("s", [0, 1, 2, 4, 5, 7, 16, 17, 31, 32, 33, 63, 64, 65, 130])
@pytest.mark.parametrize("t", [0, 1, 5, 16, 33, 255, 256, 257, 600])
def test_numbers_of_queries_and_keys(s: int, t: int) -> None:
    check_attention(Attention(), Sizes(s=s, t=t, h=2, hk=2).qkv())


@pytest.mark.parametrize("d", [0, 1, 3, 8, 15, 16, 17, 31, 33, 64, 80])
@pytest.mark.parametrize("dv", [0, 1, 3, 11, 16, 29, 64, 65, 128])
def test_sizes_of_keys_and_values(d: int, dv: int) -> None:
    for s in (3, 37):
        check_attention(Attention(), Sizes(s=s, d=d, dv=dv, b=1, h=1, hk=1).qkv())


@pytest.mark.parametrize("s", [2, 40])
@pytest.mark.parametrize("order", [HEADS_OUTSIDE, HEADS_INSIDE, TURNED, (3, 2, 1, 0)])
def test_any_strides(order: tuple[int, ...], s: int) -> None:
    for place in range(4):
        orders: list[tuple[int, ...]] = [HEADS_OUTSIDE] * 4
        orders[place] = order
        check_attention(Attention(scale=0.3), Sizes(s=s).qkv(), orders=tuple(orders))


@pytest.mark.parametrize("s", [1, 35])
@pytest.mark.parametrize(("h", "hk"), [(4, 1), (4, 2), (6, 3), (5, 5)])
def test_heads_that_share_keys(h: int, hk: int, s: int) -> None:
    check_attention(Attention(), Sizes(h=h, hk=hk, s=s).qkv())


@pytest.mark.parametrize("s", [1, 3, 70, 150])
@pytest.mark.parametrize("offset", [-80, -3, 0, 1, 90, 500])
def test_positions(offset: int, s: int) -> None:
    for left, right in ((None, 0), (0, None), (5, 0), (0, 0), (40, 17), (None, 3), (2, -1)):
        op = Attention(left=left, right=right, offset=offset)
        check_attention(op, Sizes(s=s, t=300, b=1, h=1, hk=1).qkv())


def biases(grid: tuple[int, ...], *, floats: bool) -> list[Array]:
    """Return biases that repeat along no axis, and along some."""
    found = []
    for axes in ((), (0,), (1,), (0, 1), (0, 1, 2), (2,), (3,)):
        shape = [1 if a in axes else n for a, n in enumerate(grid)]
        mask = np.random.default_rng(7).random(shape) < 0.6
        bias = np.where(mask, normal(shape, 5), -np.inf).astype(np.float32) if floats else mask
        found.append(np.broadcast_to(bias, grid))
    return [*found, stored(found[0], (0, 1, 3, 2))]


@pytest.mark.parametrize("floats", [True, False])
@pytest.mark.parametrize("s", [1, 3, 19, 67])
def test_biases_and_masks(s: int, floats: bool) -> None:
    sizes = Sizes(s=s, t=277)
    for bias in biases((sizes.b, sizes.h, s, sizes.t), floats=floats):
        check_attention(Attention(), sizes.qkv(), bias=bias)
    check_attention(Attention(right=0, offset=100), sizes.qkv(), bias=bias)
    check_attention(Attention(right=0, softcap=3.0), sizes.qkv(), bias=bias)


@pytest.mark.parametrize("s", [2, 40])
def test_a_query_that_sees_nothing_gives_zeros(s: int) -> None:
    sizes = Sizes(s=s, t=300, b=1, h=1, hk=1)
    mask = np.ones((1, 1, s, sizes.t), bool)
    mask[..., 0, :] = False
    mask[..., 1, :299] = False
    check_attention(Attention(), sizes.qkv(), bias=mask)
    check_attention(Attention(right=0, offset=-1), sizes.qkv())
    check_attention(Attention(right=0, offset=-1000), sizes.qkv())


@pytest.mark.parametrize("s", [1, 6, 70])
def test_lengths(s: int) -> None:
    sizes = Sizes(b=4, s=s, t=280)
    lengths = np.array([280, 0, 257, 9], np.int64)
    for op in (Attention(), Attention(right=0), Attention(left=7, right=0)):
        check_attention(op, sizes.qkv(), lengths=lengths)


@pytest.mark.parametrize("s", [1, 70])
def test_softcap_and_scale(s: int) -> None:
    for op in (Attention(softcap=2.5), Attention(scale=2.0), Attention(scale=4.0, softcap=30.0)):
        check_attention(op, Sizes(s=s, t=300).qkv())


@pytest.mark.parametrize("s", [2, 40])
def test_nan_and_infinity_spread_along_their_row(s: int) -> None:
    q, k, v = Sizes(s=s, t=300, b=1, h=2, hk=2).qkv()
    q[0, 0, 1, 3] = np.nan
    check_attention(Attention(), (q, k, v))
    check_attention(Attention(scale=1e30), (q, k, v))
    q[0, 0, 0] = np.inf
    check_attention(Attention(), (q, k, v))
    v[0, 1, 260, 5] = np.inf
    check_attention(Attention(), (q, k, v))
    k[0, 1, 299] = np.nan
    check_attention(Attention(), (q, k, v))


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("s", [1, 3, 40, 150])
@pytest.mark.parametrize("place", [0, 299])
def test_what_is_no_number_spreads_from_hidden_keys(place: int, s: int, odd: float) -> None:
    for op in (Attention(right=0), Attention(left=3), Attention(left=9, right=3, offset=100)):
        for operand in (1, 2):
            qkv = Sizes(s=s, t=300, b=1, h=2, hk=2).qkv()
            qkv[operand][0, 1, place, 5] = odd
            for order in (HEADS_INSIDE, TURNED):
                check_attention(op, qkv, orders=(order,) * 4)
            bias = np.where(np.arange(300) % 7 == 3, -np.inf, 0).astype(np.float32)
            check_attention(op, qkv, bias=np.broadcast_to(bias, (1, 2, s, 300)))


def test_scores_far_apart() -> None:
    q, k, v = Sizes(s=66, t=700).qkv()
    check_attention(Attention(scale=30.0), (q, k, v))
    check_attention(Attention(), (q, k * np.linspace(0, 40, 700, dtype=np.float32)[:, None], v))


def test_what_is_supported() -> None:
    assert attention_supported(Attention(), DType.FLOAT32)
    assert not attention_supported(Attention(), DType.FLOAT16)
    assert not attention_supported(replace(Attention(), scores="raw"), DType.FLOAT32)
    assert not attention_supported(Attention(softmax_dtype=DType.FLOAT64), DType.FLOAT32)


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        Sizes, st.integers(1, 2), st.just(4), st.sampled_from([1, 2, 4]), st.integers(1, 140),
        st.integers(1, 530), st.integers(1, 40), st.integers(1, 40),
    ),
    st.none() | st.integers(0, 300), st.none() | st.integers(0, 300), st.integers(-50, 300),
)  # fmt: skip
def test_any_sizes(sizes: Sizes, left: int | None, right: int | None, offset: int) -> None:
    check_attention(Attention(left=left, right=right, offset=offset), sizes.qkv())
