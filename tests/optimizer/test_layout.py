"""Views, permutations, slices, flips, broadcasts, concatenations and pads are composed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.optimizer import optimize_graph_report
from kn_graph.optimizer.axes import axis_groups
from tests.optimizer.check import build_graph, check, check_model, model_graph, ops_of, untouched
from tests.small_models import info, node

X = {"x": ("float32", ["n", 4])}
CUBE = {"x": ("float32", ["n", 3, 4])}
IMAGE = {"x": ("float32", ["n", 2, 5, 4])}
PAIR = {"x": ("float32", ["n", 3]), "y": ("float32", ["n", 4])}


# ---- chains ---------------------------------------------------------------------------------


def test_views():
    out = check(lambda g, x: g.view(g.view(x, (x.shape[0], 12)), (x.shape[0], 4, 3)), CUBE,
                {"view_of_view": 1})  # fmt: skip
    assert ops_of(out) == ["View"]
    out = check(
        lambda g, x: g.view(g.view(x, (x.shape[0], 12)), x.shape), CUBE, {"view_of_view": 1}
    )
    assert ops_of(out) == []


def test_permutations():
    out = check(lambda g, x: g.permute(g.permute(x, [2, 0, 1]), [1, 2, 0]), CUBE,
                {"permute_of_permute": 1})  # fmt: skip
    assert ops_of(out) == []
    out = check(lambda g, x: g.permute(g.permute(x, [2, 0, 1]), [2, 1, 0]), CUBE,
                {"permute_of_permute": 1})  # fmt: skip
    assert ops_of(out) == ["Permute"]


def test_permutations_of_axes_of_one_element():
    x = {"x": ("float32", ["n", 1, 4, 1])}
    out = check(lambda g, x: g.permute(x, [1, 0, 3, 2]), x, {"permute_of_units": 1})
    assert ops_of(out) == ["View"]
    untouched(lambda g, x: g.permute(x, [2, 1, 0, 3]), x, "permute_of_units")
    untouched(lambda g, x: g.permute(x, [1, 0]), X, "permute_of_units")  # n may be 1, or not


def test_flips():
    out = check(lambda g, x: g.flip(g.flip(g.flip(x, 1), 2), 1), CUBE, {"flip_of_flip": 2})
    assert ops_of(out) == ["Flip"]
    out = check(lambda g, x: g.flip(g.flip(x, 0), 0), CUBE, {"flip_of_flip": 1})
    assert ops_of(out) == []
    untouched(lambda g, x: g.flip(g.flip(x, 1), 2), CUBE, "flip_of_flip")


def test_slices():
    row = {"x": ("float32", [40, "n"])}
    out = check(lambda g, x: x[3:37:2][1:9:3], row, {"slice_of_slice": 1})
    assert [str(n.op.step) for n in out.nodes if n.op.title == "Slice"] == ["6"]
    out = check(lambda g, x: x[3:][:5][2:4], row, {"slice_of_slice": 2})
    assert ops_of(out) == ["Slice"]
    out = check(lambda g, x: x[:, 1:][1:][:, 1:], CUBE, {}, sizes=[{"n": 3}])
    assert ops_of(out) == ["Slice", "Slice"]
    out = check(lambda g, x: g.slice(x, 0, 7, 1, 5), row, {"slice_step": 1})
    assert ops_of(out) == ["Slice"]


CHAIN = st.lists(
    st.tuples(
        st.sampled_from(["permute", "flip", "slice", "view", "broadcast"]), st.integers(0, 9)
    ),
    min_size=1,
    max_size=6,
)


def step(g: Graph, x: Value, kind: str, seed: int) -> Value:
    rng = np.random.default_rng(seed)
    shape: Any = x.shape
    if kind == "permute":
        return g.permute(x, rng.permutation(x.rank).tolist())
    if kind == "flip":
        return g.flip(x, seed % x.rank)
    if kind == "slice":
        axis = seed % x.rank
        n = shape[axis]
        start = int(rng.integers(0, n)) if n else 0
        return x[(slice(None),) * axis + (slice(start, None, int(rng.integers(1, 3))),)]
    if kind == "view":
        total = int(np.prod(shape))
        options = [(total,), (1, total), (*shape, 1), (*shape[:1], total // max(shape[0], 1))]
        options = [o for o in options if int(np.prod(o)) == total]
        return g.view(x, options[seed % len(options)])
    at = [i for i, n in enumerate(shape) if n == 1]
    if not at:
        return g.unsqueeze(x, [0])
    wide = list(shape)
    wide[at[seed % len(at)]] = seed % 3 + (0 if seed == 9 else 1)
    return g.broadcast(x, wide)


@settings(max_examples=200, deadline=None)
@given(CHAIN, st.sampled_from([(2, 3, 4), (1, 4, 1), (3, 1), (0, 3), (6,)]))
def test_any_chain_is_exactly_the_same(steps, shape):
    def build(g: Graph, x: Value) -> Value:
        for kind, seed in steps:
            x = step(g, x, kind, seed)
        return x

    check(build, {"x": ("float32", shape)}, {}, sizes=[{}])


def test_groups_of_axes():
    assert axis_groups((2, 3, 4), (6, 4)) == [((0, 1), (0,)), ((2,), (1,))]
    assert axis_groups((2, 1, 12), (1, 2, 3, 4)) == [((0,), (1,)), ((2,), (2, 3))]
    assert axis_groups((2, 6), (4, 3)) == [((0, 1), (0, 1))]
    assert axis_groups((0, 3), (0,)) is None
    g = Graph("groups")
    n, m = g.symbol("n"), g.symbol("m")
    assert axis_groups((n, m, 4), (n * m, 2, 2)) == [((0, 1), (0,)), ((2,), (1, 2))]
    assert axis_groups((n, m), (m, n)) == [((0, 1), (0, 1))]
    assert axis_groups((n, 4), (m, 4)) is None


# ---- one of several stacked tensors ---------------------------------------------------------


def test_query_key_and_value_of_one_product():
    # timm: reshape [b, n, 3, h, d], permute to [3, b, h, n, d], unbind
    x = {"x": ("float32", ["n", 7, 24])}

    def build(g: Graph, x: Value) -> list[Value]:
        parts = g.permute(g.view(x, (x.shape[0], 7, 3, 2, 4)), [2, 0, 3, 1, 4])
        return [parts[i] for i in range(3)]

    out = check(build, x, {"select_of_permute": 3, "view_of_slice_of_view": 3}, sizes=[{"n": 2}])
    assert ops_of(out) == ["Permute"] * 3 + ["Slice"] * 3 + ["View"] * 3
    for n in out.nodes:
        if n.op.title == "Slice":
            assert n.operands[0] is out.inputs[0]


def test_slices_within_a_group_of_axes_stay():
    flat = {"x": ("float32", ["n", 24])}
    cut = lambda g, x: g.view(x, (x.shape[0], 4, 6))  # noqa: E731
    for build in (
        lambda g, x: g.view(cut(g, x)[:, :, 1:3], (x.shape[0], 8)),
        lambda g, x: g.view(cut(g, x)[:, ::2], (x.shape[0], 12)),
    ):
        untouched(build, flat, "view_of_slice_of_view")
    out = check(lambda g, x: g.view(cut(g, x)[:, 1:3], (x.shape[0], 12)), flat,
                {"view_of_slice_of_view": 1})  # fmt: skip
    assert ops_of(out) == ["Slice"]


def test_rotations_keep_their_form():
    # concat(-x2, x1) of one permuted tensor: attention recognises rotary embeddings by it
    x = {"x": ("float32", ["n", 7, 2, 8])}

    def build(g: Graph, x: Value) -> Value:
        y = g.permute(x, [0, 2, 1, 3])
        return g.concat([-y[..., 4:], y[..., :4]], 3) + y

    untouched(build, x, "select_of_permute", "view_of_slice_of_view", "squeeze_of_permute")


def test_squeezes_go_before_permutations():
    x = {"x": ("float32", ["n", 1, 4, 5])}
    out = check(
        lambda g, x: g.squeeze(g.permute(x, [3, 1, 0, 2]), [1]), x, {"squeeze_of_permute": 1}
    )
    assert [n.op.title for n in out.nodes][-2:] == ["View", "Permute"]


# ---- broadcasts -----------------------------------------------------------------------------


def test_broadcasts_move_behind_layouts():
    x = {"x": ("float32", [1, 4, 1])}
    wide = lambda g, x: g.broadcast(x, (3, 4, 5))  # noqa: E731
    for build, left in [
        (lambda g, x: g.permute(wide(g, x), [1, 0, 2]), ["Broadcast", "View"]),
        (lambda g, x: wide(g, x)[1:, 1:, ::2], ["Broadcast", "Slice"]),
        (lambda g, x: g.flip(g.flip(wide(g, x), 0), 1), ["Broadcast", "Flip"]),
        (lambda g, x: g.view(wide(g, x), (3, 2, 2, 5)), ["Broadcast", "View"]),
        (lambda g, x: g.broadcast(g.broadcast(x, (3, 4, 1)), (3, 4, 5)), ["Broadcast"]),
    ]:
        assert ops_of(check(build, x, {}, sizes=[{}])) == left
    for mixed in ((12, 5), (3, 20), (60,)):
        untouched(lambda g, x, s=mixed: g.view(wide(g, x), s), x, "layout_of_broadcast")


def test_a_repeated_head_stays():
    # llama's repeat_kv: the repeated axis is merged with another one
    x = {"x": ("float32", ["n", 2, 1, 6])}

    def build(g: Graph, x: Value) -> Value:
        return g.view(g.broadcast(x, (x.shape[0], 2, 3, 6)), (x.shape[0], 6, 6))

    untouched(build, x, "layout_of_broadcast")


def test_elementwise_operations_are_done_before_repeating():
    def mask(g: Graph, x: Value, y: Value) -> Value:
        n, m = x.shape[0], y.shape[0]
        rows, columns = g.view(x, (n, 1, 1)), g.view(y, (1, m, 1))
        a = g.broadcast(rows, (n, m, 8))
        b = g.broadcast(columns, (n, m, 8))
        return g.cast(a, DType.FLOAT32) * g.relu(b)

    xy = {"x": ("float32", ["n"]), "y": ("float32", ["m"])}
    out = check(mask, xy, {"narrow_elementwise": 2})
    last = out.outputs["y0"].node
    assert last.op.title == "Broadcast"
    assert last.operands[0].shape[-1] == 1
    untouched(lambda g, x: x + g.broadcast(g.reduce("sum", x, [1], keep=True), x.shape), X,
              "narrow_elementwise")  # fmt: skip


# ---- concatenations -------------------------------------------------------------------------


def test_slices_of_concatenations():
    joined = lambda g, x, y: g.concat([x, y, x], 1)  # noqa: E731
    for build, left in [
        (lambda g, x, y: joined(g, x, y)[:, :3], []),
        (lambda g, x, y: joined(g, x, y)[:, 4:6], ["Slice"]),
        (lambda g, x, y: joined(g, x, y)[:, 3:7], []),
        (lambda g, x, y: joined(g, x, y)[:, 3:], ["Concat"]),
    ]:
        assert ops_of(check(build, PAIR, {"slice_of_concat": 1})) == left
    for build in (
        lambda g, x, y: joined(g, x, y)[:, 2:4],
        lambda g, x, y: joined(g, x, y)[:, ::4],
        lambda g, x, y: joined(g, x, y)[:, 0:7:2],
        lambda g, x, y: joined(g, x, y)[:1],
    ):
        untouched(build, {n: (d, [2, s[1]]) for n, (d, s) in PAIR.items()}, "slice_of_concat")


def test_slices_of_concatenations_of_symbolic_length():
    past = {"past": ("float32", ["m", 4]), "x": ("float32", ["n", 4])}
    build = lambda g, p, x: g.concat([p, x], 0)  # noqa: E731
    out = check(lambda g, p, x: g.slice(build(g, p, x), 0, p.shape[0], x.shape[0]), past,
                {"slice_of_concat": 1})  # fmt: skip
    assert ops_of(out) == []
    untouched(lambda g, p, x: build(g, p, x)[:1], {**past, "x": ("float32", [3, 4])},
              "slice_of_concat")  # fmt: skip


def test_concatenations_of_concatenations():
    out = check(lambda g, x, y: g.concat([g.concat([x, y], 1), x], 1), PAIR,
                {"concat_of_concat": 1})  # fmt: skip
    assert ops_of(out) == ["Concat"]

    def shared(g: Graph, x: Value, y: Value) -> list[Value]:
        inner = g.concat([x, y], 1)
        return [g.concat([inner, x], 1), g.relu(inner)]

    untouched(shared, PAIR, "concat_of_concat")
    untouched(lambda g, x, y: g.concat([g.concat([x, x], 0), g.concat([x, x], 0)], 1), PAIR,
              "concat_of_concat")  # fmt: skip


def test_adjacent_slices_are_one():
    ten = {"x": ("float32", ["n", 10])}
    out = check(lambda g, x: g.concat([x[:, :3], x[:, 3:7], x[:, 7:]], 1), ten,
                {"concat_of_slices": 1})  # fmt: skip
    assert ops_of(out) == []
    out = check(lambda g, x: g.concat([x[:, 1:3], x[:, 3:7], x[:, :1]], 1), ten,
                {"concat_of_slices": 1})  # fmt: skip
    assert ops_of(out) == ["Concat", "Slice", "Slice"]
    untouched(lambda g, x: g.concat([x[:, 3:], x[:, :3]], 1), ten, "concat_of_slices")
    untouched(lambda g, x: g.concat([x[:, :3], x[:, 3:6]], 0), ten, "concat_of_slices")


def test_the_states_of_a_recurrent_network():
    # dynamo cuts the initial states apart and joins them again, layer by layer
    states = {"x": ("float32", [4, "n", 8])}
    build = lambda g, x: g.concat([x[:1], x[1:2], x[2:3], x[3:4]], 0)  # noqa: E731
    assert ops_of(check(build, states, {"concat_of_slices": 1})) == []


def test_empty_parts():
    empty = {"x": ("float32", ["n", 4]), "e": ("float32", [0, 4])}
    assert ops_of(check(lambda g, x, e: g.concat([e, x], 0), empty, {"empty_part": 1})) == []


# ---- pads -----------------------------------------------------------------------------------


def pad(g: Graph, x: Value, around: int, value: float = 0.0) -> Value:
    pads = [(0, 0), (0, 0), (around, around), (around + 1, around)]
    return g.pad(x, pads, value=g.scalar(value, x.dtype))


def test_pads_of_pads():
    out = check(lambda g, x: pad(g, pad(g, x, 1, 2.0), 2, 2.0), IMAGE, {"pad_of_pad": 1})
    assert ops_of(out) == ["Pad"]
    untouched(lambda g, x: pad(g, pad(g, x, 1, 2.0), 2), IMAGE, "pad_of_pad")
    untouched(lambda g, x: g.pad(pad(g, x, 1), [(0, 0)] * 2 + [(1, 1)] * 2, "edge"), IMAGE,
              "pad_of_pad")  # fmt: skip


def weights(g: Graph) -> Value:
    return g.constant(np.random.default_rng(0).standard_normal((3, 2, 3, 3)).astype(np.float32))


def test_zeros_before_a_convolution():
    # Keras: ZeroPadding2D before a convolution with 'valid'; PyTorch: F.pad
    def build(g: Graph, x: Value) -> Value:
        return g.conv(pad(g, x, 1), weights(g), strides=[2, 1], pads=[(0, 1), (1, 0)])

    out = check(build, IMAGE, {"pad_into_conv": 1})
    (op,) = [n.op for n in out.nodes if n.op.title == "Conv"]
    assert op.pads == ((1, 2), (3, 1))
    untouched(lambda g, x: g.conv(pad(g, x, 1, 1.0), weights(g)), IMAGE, "pad_into_conv")
    untouched(lambda g, x: g.conv(g.pad(x, [(0, 0)] * 2 + [(1, 1)] * 2, "reflect"), weights(g)),
              IMAGE, "pad_into_conv")  # fmt: skip
    channels = {"x": ("float32", ["n", 1, 5, 4])}
    report = untouched(
        lambda g, x: g.conv(g.pad(x, [(0, 0), (1, 0), (1, 1), (1, 1)]), weights(g)), channels,
        "pad_into_conv",
    )  # fmt: skip
    assert report.refused["pad_into_conv", "other axes than the spatial ones are padded"] == 1


def test_pads_before_pools_of_a_model():
    nodes = [
        node("Pad", "x pads", "p"),
        node("AveragePool", "p", "y", kernel_shape=[3, 3], strides=[2, 2], count_include_pad=0),
    ]
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    graph = model_graph(nodes, [info("x", ["n", 2, 5, 4])], weights={"pads": pads})
    out = check_model(graph, {"pad_into_pool": 1}, sizes=[{"n": 2}])
    (op,) = [n.op for n in out.nodes if n.op.title.startswith("Pool")]
    assert op.count_include_pad


@pytest.mark.parametrize("fn", ["mean", "sum", "max"])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("value", [0.0, -np.inf])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pads_before_pools_are_right_or_refused(fn, ceil, own, include, value, stride):
    def build(g: Graph, x: Value) -> Value:
        x = pad(g, g.relu(x), 1, value)
        more = {"ceil": ceil, "count_include_pad": include and fn == "mean"}
        return g.pool(x, fn, [3, 3], strides=[stride] * 2, pads=[(own, own)] * 2, **more)

    check(build, IMAGE, {}, rtol=1e-6, sizes=[{"n": 2}])


def test_when_a_pad_becomes_that_of_a_pool():
    def pooled(fn, value=0.0, relu=True, **more):
        def build(g: Graph, x: Value) -> Value:
            return g.pool(pad(g, g.relu(x) if relu else x, 1, value), fn, [3, 3], **more)

        return build

    check(pooled("max"), IMAGE, {"pad_into_pool": 1})  # Keras' ResNet: never negative
    check(pooled("max", -np.inf, relu=False), IMAGE, {"pad_into_pool": 1})
    check(pooled("sum"), IMAGE, {"pad_into_pool": 1}, rtol=1e-6)
    check(pooled("mean"), IMAGE, {"pad_into_pool": 1}, rtol=1e-6)
    untouched(pooled("max", relu=False), IMAGE, "pad_into_pool")
    untouched(pooled("mean", pads=[(1, 1), (1, 1)]), IMAGE, "pad_into_pool")
    untouched(pooled("sum", 1.0), IMAGE, "pad_into_pool")
    untouched(pooled("max", dilations=[2, 1]), IMAGE, "pad_into_pool")

    def wide(g: Graph, x: Value) -> Value:
        x = g.pad(g.relu(x), [(0, 0), (0, 0), (3, 3), (3, 3)])
        return g.pool(x, "max", [3, 3])

    report = untouched(wide, IMAGE, "pad_into_pool")
    assert report.refused["pad_into_pool", "a window may lie in the padding alone"] == 1


def test_optimizing_leaves_the_given_graph_alone():
    graph = build_graph(lambda g, x: g.view(g.view(x, (4, x.shape[0])), x.shape), X)
    before = str(graph)
    optimize_graph_report(graph)
    assert str(graph) == before
    assert cpu_eval_graph(graph, {"x": np.ones((2, 4), np.float32)})["y0"].shape == (2, 4)
