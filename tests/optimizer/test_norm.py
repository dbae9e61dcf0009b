"""Normalisations as exporters spell them out: each becomes one Norm, scale and bias behind it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kn_graph import DType, Graph, cpu_eval_graph
from kn_graph.ops.norm import Norm
from kn_graph.optimizer import OptimizerSettings, optimize_graph_report
from kn_graph.transform import clone_graph
from tests.optimizer.exported import drawn, exported, only, special
from tests.optimizer.rewriting import EXPORTS, MODELS, ops, optimized, refusals, stored

EPSILON = 1e-5
WEIGHTS = {"w": [1.5, -2.0, 0.5, 3.0], "b": [0.25, -1.0, 2.0, 0.0]}
IMAGE = (2, 4, 3, 5)

# name: (text, axes, center)
FORMS: dict[str, tuple[str, tuple[int, ...], bool]] = {
    "torch 16 layer_norm": (
        "d = Sub(x, ReduceMean(x, axes=[-1]))\n"
        "v = ReduceMean(Pow(d, 2.0), axes=[-1])\n"
        "y = Add(Mul(Div(d, Sqrt(Add(v, 1e-5))), w), b)",
        (2,),
        True,
    ),
    "paddle layer_norm": (
        "m = ReduceMean(x, axes=[2])\n"
        "d = Sub(x, m)\n"
        "v = ReduceMean(Mul(d, d), axes=[2])\n"
        "y = Add(Mul(Div(d, Sqrt(Add(1e-5, v))), w), b)",
        (2,),
        True,
    ),
    "keras layer_norm": (
        "m = ReduceMean(x, axes=[2])\n"
        "s = Sub(x, m)\n"
        "v = ReduceMean(Mul(s, s), axes=[2])\n"
        "r = Mul(Reciprocal(Sqrt(Add(v, 1e-5))), w)\n"
        "y = Add(Mul(x, r), Sub(b, Mul(m, r)))",
        (2,),
        True,
    ),
    "tf batch moments": (
        "m = ReduceMean(x, axes=[0, 1])\n"
        "s = Sub(x, m)\n"
        "v = ReduceMean(Mul(s, s), axes=[0, 1])\n"
        "r = Mul(w, Div(1.0, Sqrt(Add(v, 1e-5))))\n"
        "y = Add(Sub(b, Mul(r, m)), Mul(r, x))",
        (0, 1),
        True,
    ),
    "moments the other way": (
        "m = ReduceMean(x, axes=[2])\n"
        "s = Sub(x, m)\n"
        "v = ReduceMean(Mul(s, s), axes=[2])\n"
        "r = Mul(w, Div(1.0, Sqrt(Add(v, 1e-5))))\n"
        "y = Sub(Mul(r, x), Sub(Mul(r, m), b))",
        (2,),
        True,
    ),
    "scale first": (
        "d = Sub(x, ReduceMean(x, axes=[2]))\n"
        "v = ReduceMean(Mul(d, d), axes=[2])\n"
        "y = Add(Mul(d, Mul(w, Reciprocal(Sqrt(Add(v, 1e-5))))), b)",
        (2,),
        True,
    ),
    "without keepdims": (
        "m = ReduceMean(x, axes=[2], keepdims=0)\n"
        "d = Sub(x, Unsqueeze(m, [2]))\n"
        "v = ReduceMean(Pow(d, 2.0), axes=[2], keepdims=0)\n"
        "y = Div(d, Unsqueeze(Sqrt(Add(v, 1e-5)), [-1]))",
        (2,),
        True,
    ),
    "sums": (
        "d = Sub(x, Div(ReduceSum(x, [2]), 4.0))\n"
        "v = Mul(ReduceSum(Mul(d, d), [2]), 0.25)\n"
        "y = Div(d, Sqrt(Add(v, 1e-5)))",
        (2,),
        True,
    ),
    "two axes": (
        "d = Sub(x, ReduceMean(x, axes=[1, 2]))\n"
        "v = ReduceMean(Pow(d, 2.0), axes=[1, 2])\n"
        "y = Div(d, Pow(Add(v, 1e-5), 0.5))",
        (1, 2),
        True,
    ),
    "channels first": (
        "d = Sub(x, ReduceMean(x, axes=[1]))\n"
        "v = ReduceMean(Pow(d, 2.0), axes=[1])\n"
        "y = Add(Mul(w, Div(d, Sqrt(Add(v, 1e-5)))), b)",
        (1,),
        True,
    ),
    "llama, legacy": (
        "v = ReduceMean(Pow(x, 2.0), axes=[-1])\ny = Mul(w, Mul(x, Div(1.0, Sqrt(Add(v, 1e-5)))))",
        (2,),
        False,
    ),
    "llama, dynamo": (
        "v = ReduceMean(Pow(x, 2.0), axes=[-1])\n"
        "y = Mul(w, Mul(x, Reciprocal(Sqrt(Add(v, 1e-5)))))",
        (2,),
        False,
    ),
    "rms by division": (
        "v = ReduceMean(Mul(x, x), axes=[-1])\ny = Mul(Div(x, Sqrt(Add(v, 1e-5))), w)",
        (2,),
        False,
    ),
    "rms by a power": (
        "v = ReduceMean(Mul(x, x), axes=[-1])\ny = Mul(x, Pow(Add(v, 1e-5), -0.5))",
        (2,),
        False,
    ),
    "rms with one scale": (
        "v = ReduceMean(Mul(x, x), axes=[-1])\ny = Mul(x, Mul(Reciprocal(Sqrt(Add(v, 1e-5))), w))",
        (2,),
        False,
    ),
}


def load(name: str, dtype: str = "float32") -> Graph:
    return exported(FORMS[name][0], dtype=dtype, shape=["n", "m", 4], weights=WEIGHTS)


def norms(graph: Graph) -> list[Norm]:
    return [n.op for n in graph.nodes if isinstance(n.op, Norm)]


def fired_norms(graph: Graph) -> Graph:
    out, report = optimized(graph)
    assert report.fired["norm"] + report.fired["shifted_norm"] == 1, str(report)
    return out


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_one_norm(name):
    graph, (_, axes, center) = load(name), FORMS[name]
    out = fired_norms(graph)
    (norm,) = norms(out)
    assert (norm.axes, norm.center) == (axes, center)
    assert norm.epsilon == pytest.approx(EPSILON, rel=1e-6)
    assert ops(out).keys() <= {"Norm", "RMSNorm", "mul", "add"}
    assert ops(out).total() <= 3


@pytest.mark.parametrize("name", FORMS)
def test_no_other_rule_is_needed(name):
    out, report = optimize_graph_report(load(name), only("norm"))
    assert report.fired["norm"] + report.fired["shifted_norm"] == 1, str(report)
    assert [n.axes for n in norms(out)] == [FORMS[name][1]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FORMS)
def test_results_stay(name, dtype):
    graph = load(name, dtype)
    out = fired_norms(graph)
    exact_graph = load(name, "float64")
    for shape in ((2, 3, 4), (1, 1, 4), (3, 1, 4), (0, 2, 4)):
        x = drawn(dtype, shape, sum(shape))
        exact = cpu_eval_graph(exact_graph, {"x": x.astype(np.float64)})["y"]
        got = cpu_eval_graph(out, {"x": x})["y"]
        assert got.dtype == x.dtype
        eps = {"float64": 1e-14, "float32": 2e-6, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
        # where the values of a group are close together, 1 / deviation magnifies their rounding
        np.testing.assert_allclose(got.astype(np.float64), exact, rtol=eps, atol=8 * eps)


@pytest.mark.parametrize("name", FORMS)
def test_nan_comes_out_where_it_did(name):
    graph = load(name)
    out = fired_norms(graph)
    for rows in special("float32"):
        x = np.stack([rows, rows[::-1], [1, 2, 3, 4]]).reshape(1, 3, 4).astype(np.float32)
        before, after = (cpu_eval_graph(g, {"x": x})["y"] for g in (graph, out))
        np.testing.assert_array_equal(np.isnan(before), np.isnan(after))


NEAR_MISSES = {
    "epsilon outside": "d = Sub(x, ReduceMean(x, axes=[2]))\n"
    "v = ReduceMean(Mul(d, d), axes=[2])\ny = Div(d, Add(Sqrt(v), 1e-5))",
    "negative epsilon": "d = Sub(x, ReduceMean(x, axes=[2]))\n"
    "v = ReduceMean(Mul(d, d), axes=[2])\ny = Div(d, Sqrt(Add(v, -1e-5)))",
    "no root": "d = Sub(x, ReduceMean(x, axes=[2]))\n"
    "v = ReduceMean(Mul(d, d), axes=[2])\ny = Div(d, Add(v, 1e-5))",
    "multiplied with the root": "d = Sub(x, ReduceMean(x, axes=[2]))\n"
    "v = ReduceMean(Mul(d, d), axes=[2])\ny = Mul(d, Sqrt(Add(v, 1e-5)))",
    "cubed": "d = Sub(x, ReduceMean(x, axes=[2]))\n"
    "v = ReduceMean(Pow(d, 3.0), axes=[2])\ny = Div(d, Sqrt(Add(v, 1e-5)))",
    "deviation of x": "d = Sub(x, ReduceMean(x, axes=[2]))\n"
    "v = ReduceMean(Mul(d, d), axes=[2])\ny = Div(x, Sqrt(Add(v, 1e-5)))",
    "x over its own": "d = Sub(x, ReduceMean(x, axes=[2]))\n"
    "v = ReduceMean(Mul(x, x), axes=[2])\ny = Div(d, Sqrt(Add(v, 1e-5)))",
    "unbiased": "d = Sub(x, ReduceMean(x, axes=[2]))\n"
    "v = Div(ReduceSum(Mul(d, d), [2]), 3.0)\ny = Div(d, Sqrt(Add(v, 1e-5)))",
    "rounded on the way": "h = Cast(Cast(x, to=10), to=1)\n"
    "y = Div(x, Sqrt(Add(ReduceMean(Mul(h, h), axes=[2]), 1e-5)))",
    "root of a power": "v = ReduceMean(Mul(x, x), axes=[2])\ny = Div(x, Pow(Add(v, 1e-5), 0.25))",
    "two over the root": "v = ReduceMean(Mul(x, x), axes=[2])\n"
    "y = Mul(x, Div(2.0, Sqrt(Add(v, 1e-5))))",
    "sum of squares": "y = Div(x, Sqrt(Add(ReduceSum(Mul(x, x), [2]), 1e-5)))",
    "L2": "y = Div(x, ReduceL2(x, axes=[2]))",
    "maximum": "d = Sub(x, ReduceMax(x, axes=[2]))\n"
    "v = ReduceMax(Mul(d, d), axes=[2])\ny = Div(d, Sqrt(Add(v, 1e-5)))",
    "cancelling variance": "m = ReduceMean(x, axes=[2])\n"
    "v = Sub(ReduceMean(Mul(x, x), axes=[2]), Mul(m, m))\n"
    "y = Div(Sub(x, m), Sqrt(Add(v, 1e-5)))",
    "mixed product": "d = Sub(x, ReduceMean(x, axes=[2]))\n"
    "v = ReduceMean(Mul(d, x), axes=[2])\ny = Div(d, Sqrt(Add(v, 1e-5)))",
    "reversed": "v = ReduceMean(Mul(x, x), axes=[2])\ny = Div(Sqrt(Add(v, 1e-5)), x)",
    "another mean shifts": "m = ReduceMean(x, axes=[2])\nd = Sub(x, m)\n"
    "v = ReduceMean(Mul(d, d), axes=[2])\nr = Reciprocal(Sqrt(Add(v, 1e-5)))\n"
    "y = Add(Mul(x, r), Sub(2.0, Mul(ReduceMean(x, axes=[1]), r)))",
    "twice the mean": "d = Sub(x, Mul(ReduceMean(x, axes=[2]), 2.0))\n"
    "v = ReduceMean(Mul(d, d), axes=[2])\nr = Reciprocal(Sqrt(Add(v, 1e-5)))\n"
    "y = Add(Mul(x, r), Sub(2.0, Mul(ReduceMean(x, axes=[2]), r)))",
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_are_left_alone(name):
    graph = exported(NEAR_MISSES[name], shape=["n", 4, 4])
    for settings_ in (OptimizerSettings(), only("norm")):
        out, report = optimized(graph, settings_)
        assert not norms(out), str(report)


def test_a_root_mean_square_of_a_difference_is_an_rms_norm():
    """The mean over other axes is no part of it."""
    text = "d = Sub(x, ReduceMean(x, axes=[1]))\nv = ReduceMean(Mul(d, d), axes=[2])\n"
    graph = exported(text + "y = Div(d, Sqrt(Add(v, 1e-5)))", shape=["n", 4, 4])
    out = fired_norms(graph)
    assert norms(out)[0].center is False
    assert ops(out) == {"reduce_mean": 1, "sub": 1, "RMSNorm": 1}
    x = {"x": drawn("float32", (2, 4, 4))}
    before, after = (cpu_eval_graph(g, x)["y"] for g in (graph, out))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shared", ["d", "v", "m"])
def test_what_others_read_stays(shared):
    text = "m = ReduceMean(x, axes=[2])\nd = Sub(x, m)\nv = ReduceMean(Mul(d, d), axes=[2])\n"
    graph = clone_graph(exported(text + "y = Div(d, Sqrt(Add(v, 1e-5)))", shape=["n", "m", 4]))
    also = next(v for n in graph.nodes for v in n.results if shared in v.names)
    graph.output("also", also)
    out, report = optimized(graph, norm=0)
    assert not norms(out)
    assert refusals(report, "norm") == ["an intermediate result has other readers"]


def test_a_square_of_axes_needs_the_right_one():
    """In a square matrix, reducing rows and repeating along columns has a fitting shape."""
    g = Graph("square")
    x = g.input("x", "float32", [4, 4])
    mean = g.reduce("mean", g.mul(x, x), [1])
    deviation = g.sqrt(g.add(mean, g.scalar(1e-5, DType.FLOAT32)))
    g.output("y", g.div(x, g.broadcast(deviation, (4, 4))))
    out, _ = optimized(g, norm=0)
    assert not norms(out)


def test_a_mean_of_rows_is_not_that_of_columns():
    g = Graph("square")
    x = g.input("x", "float32", [4, 4])
    d = g.sub(x, g.broadcast(g.reduce("mean", x, [1]), (4, 4)))
    deviation = g.sqrt(g.reduce("mean", g.mul(d, d), [1], keep=True) + 1e-5)
    g.output("y", g.div(d, g.broadcast(deviation, (4, 4))))
    out, _ = optimized(g, norm=1)
    assert ops(out) == {"reduce_mean": 1, "sub": 1, "RMSNorm": 1}


def test_settings_switch_it_off():
    graph = load("llama, legacy")
    out, _ = optimized(graph, OptimizerSettings(fuse_norm=False), norm=0)
    assert not norms(out)
    out, _ = optimized(graph, OptimizerSettings(disabled=frozenset({"norm"})), norm=0)
    assert not norms(out)


# ---- casts ----------------------------------------------------------------------------------

T5 = (
    "h = Cast(x, to=1)\n"
    "v = ReduceMean(Pow(h, Cast(2.0, to=1)), axes=[-1])\n"
    "s = Div(Cast(1.0, to=1), Sqrt(Add(v, Cast(1e-5, to=1))))\n"
    "y = Mul(w, Cast(Mul(h, s), to={code}))"
)
APEX = (
    "h = Cast(x, to=1)\n"
    "d = Sub(h, ReduceMean(h, axes=[-1]))\n"
    "v = ReduceMean(Pow(d, Cast(2.0, to=1)), axes=[-1])\n"
    "n = Cast(Div(d, Sqrt(Add(v, Cast(1e-5, to=1)))), to={code})\n"
    "y = Add(Mul(n, w), b)"
)
LATE = (
    "m = ReduceMean(x, axes=[-1])\n"
    "d = Sub(x, m)\n"
    "v = ReduceMean(Pow(Cast(d, to=1), Cast(2.0, to=1)), axes=[-1])\n"
    "y = Div(d, Cast(Sqrt(Add(v, Cast(1e-5, to=1))), to={code}))"
)


@pytest.mark.parametrize(("dtype", "code"), [("float16", 10), ("bfloat16", 16)])
@pytest.mark.parametrize("text", [T5, APEX, LATE], ids=["t5", "apex", "late"])
def test_casts_to_float32_are_part_of_it(text, dtype, code):
    text_of_type = text.format(code=code)
    graph = exported(text_of_type, dtype=dtype, shape=["n", "m", 4], weights=WEIGHTS)
    out, _ = optimized(graph, norm=1, narrow_norm=int(text is not LATE))
    left = ops(out)
    assert "Cast" not in left
    assert left["Norm"] + left["RMSNorm"] == 1
    x = drawn(dtype, (2, 3, 4))
    before, after = (cpu_eval_graph(g, {"x": x})["y"].astype(np.float64) for g in (graph, out))
    eps = 8e-3 if dtype == "bfloat16" else 1e-3
    np.testing.assert_allclose(after, before, rtol=4 * eps, atol=4 * eps)


def test_casts_that_lose_digits_are_no_part_of_it():
    text = "v = Cast(Cast(ReduceMean(Mul(x, x), axes=[2]), to=10), to=1)\n"
    out, _ = optimized(exported(text + "y = Div(x, Sqrt(Add(v, 1e-5)))", shape=["n", 3, 4]))
    assert not norms(out)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("center", [True, False])
def test_a_narrow_norm_is_exact(center, dtype):
    g = Graph("narrow")
    x = g.input("x", dtype, ["n", 8])
    wide = g.norm(g.cast(x, DType.FLOAT32), [1], 1e-5, center=center)
    g.output("y", g.cast(wide, x.dtype))
    out, _ = optimized(g, narrow_norm=1)
    assert ops(out).total() == 1
    given = np.concatenate([drawn(dtype, (6, 8)), special(dtype, 8)])
    before, after = (cpu_eval_graph(h, {"x": given})["y"] for h in (g, out))
    np.testing.assert_array_equal(before.astype(np.float32), after.astype(np.float32))


@pytest.mark.parametrize("to", ["float64", "bfloat16"])
def test_a_norm_between_other_casts_stays(to):
    g = Graph("narrow")
    x = g.input("x", "float16", ["n", 8])
    g.output("y", g.cast(g.norm(g.cast(x, DType.FLOAT32), [1], 1e-5), DType.parse(to)))
    optimized(g, narrow_norm=0)


# ---- any axes -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.sets(st.integers(0, 3), min_size=1),
    st.booleans(),
    st.booleans(),
)
def test_any_axes_and_sizes(shape, axes, center, static):
    g = Graph("any")
    for name in "abcd":
        g.symbol(name, lo=0)
    x = g.input("x", "float32", shape if static else list("abcd"))
    d = x
    if center:
        mean = g.reduce("mean", x, sorted(axes), keep=True)
        d = g.sub(x, g.broadcast(mean, x.shape))
    v = g.reduce("mean", g.mul(d, d), sorted(axes), keep=True)
    g.output("y", g.div(d, g.broadcast(g.sqrt(v + 1e-3), x.shape)))
    out, report = optimize_graph_report(g)
    given_x = {"x": drawn("float32", shape)}
    before, after = (cpu_eval_graph(h, given_x)["y"] for h in (g, out))
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)
    if not static:
        assert report.fired["norm"] == 1, str(report)


# ---- models ---------------------------------------------------------------------------------

NORMS = {
    "bert_mini": 9,
    "clip_text": 9,
    "convnext_tiny": 23,
    "distilbert": 13,
    "gpt2_kv": 9,
    "gpt2_prefill": 9,
    "llama_kv": 9,
    "llama_prefill": 9,
    "sd_unet": 33,
    "sd_vae_decoder": 14,
    "swin_tiny": 21,
    "t5_encoder": 7,
    "vit_tiny": 25,
    "whisper_encoder": 5,
}


@pytest.mark.real_models
@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.parametrize("name", NORMS)
def test_exports_have_one_norm_for_each_norm(name, exporter):
    out, _ = optimized(stored(EXPORTS, f"{name}.{exporter}.onnx"))
    left = ops(out)
    assert left["Norm"] + left["RMSNorm"] == NORMS[name]
    assert not {"sqrt", "rsqrt", "reciprocal"} & left.keys()


@pytest.mark.real_models
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("22edcdb81193", 5),
        ("48fc40f24f6d", 5),
        ("5a9b3ed3be29", 2),
        ("6f327246b503", 5),
        ("94a13cfe6007", 4),  # two of them in a branch
        ("c2a311e8fa13", 2),
    ],
)
def test_norms_of_real_models(name, count):
    optimized(stored(MODELS, f"{name}.onnx"), norm=count)


def test_group_norm_of_the_legacy_exporter():
    """Instance normalisation of groups, then scale and bias of channels."""
    text = (
        "i = InstanceNormalization(Reshape(x, [0, 2, -1]), one, zero)\n"
        "y = Add(Mul(Reshape(i, [2, 4, 3, 5]), w), b)"
    )
    weights = {
        "one": [1.0, 1.0],
        "zero": [0.0, 0.0],
        "w": np.reshape(WEIGHTS["w"], (4, 1, 1)),
        "b": np.reshape(WEIGHTS["b"], (4, 1, 1)),
    }
    graph = exported(text, shape=IMAGE, weights=weights)
    out, _ = optimized(graph)
    assert ops(out) == {"Norm": 1, "mul": 1, "add": 1}
    x = {"x": drawn("float32", IMAGE)}
    before, after = (cpu_eval_graph(g, x)["y"] for g in (graph, out))
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)


def test_group_norm_of_means():
    """Keras and Paddle write the statistics out."""
    text = (
        "g = Reshape(x, [0, 2, 2, 3, 5])\n"
        "d = Sub(g, ReduceMean(g, axes=[2, 3, 4]))\n"
        "v = ReduceMean(Mul(d, d), axes=[2, 3, 4])\n"
        "y = Add(Mul(Reshape(Div(d, Sqrt(Add(v, 1e-5))), [2, 4, 3, 5]), w), b)"
    )
    weights = {k: np.reshape(WEIGHTS[k], (4, 1, 1)) for k in "wb"}
    out, _ = optimized(exported(text, shape=IMAGE, weights=weights), norm=1)
    assert ops(out) == {"Norm": 1, "mul": 1, "add": 1}
