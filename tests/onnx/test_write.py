"""Graphs written as ONNX: valid, equal when loaded again, the same bytes every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from kn_graph import (
    DType,
    Graph,
    cpu_eval_graph,
    graph_to_onnx_bytes,
    load_graph_from_onnx_bytes,
    load_graph_from_onnx_path,
    optimize_graph,
    save_graph_to_onnx_path,
)
from kn_graph.errors import UnsupportedModelError, UsageError
from kn_graph.onnx import graph_to_model_proto
from kn_graph.onnx.write.names import Names
from kn_graph.onnx.write.registry import find_writer
from kn_graph.op import Op
from kn_graph.ops.coupling import PairwiseCoupling
from kn_graph.ops.elementwise import BitCast
from kn_graph.ops.nms import KeptBoxes
from kn_graph.ops.source import Constant, Input
from models.architectures import ARCHITECTURES
from models.generate import NAMES, inputs, model_bytes
from tests.onnx.writing import assert_agree, onnxruntime_outputs, reloaded, written
from tests.ops.example import Example
from tests.ops.examples import EXAMPLES as TENSOR_EXAMPLES
from tests.ops.examples_control import CONTROL_EXAMPLES
from tests.ops.test_examples import OPERATIONS, name_of
from tests.small_models import info, model, node

OPSETS = {"BitCast": 26}
UNWRITABLE = {"KeptBoxes", "PairwiseCoupling", "Random"}
"""There is no operator; the numbers depend on the place of the node in its graph."""
EXAMPLES = [e for e in (*TENSOR_EXAMPLES, *CONTROL_EXAMPLES) if e.op.__name__ not in UNWRITABLE]
ONNXRUNTIME_DIFFERS = {
    # operation: what onnxruntime does
    "NonMaxSuppression": "other boxes of equal scores",
    "ReduceTo": "a mean of nothing is 0",
}
F = "float32"


def opset_of(example: Example) -> int:
    return OPSETS.get(example.op.__name__, 21)


# ---- every operation ------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_every_operation_computes_the_same_when_it_was_written(example: Example) -> None:
    graph = example.graph()
    again = reloaded(graph, opset_of(example))
    assert list(again.outputs) == list(graph.outputs)
    for sizes in example.sizes:
        feeds = example.feeds(sizes)
        assert_agree(graph, feeds, cpu_eval_graph(again, feeds))


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_onnxruntime_computes_the_same_from_what_was_written(example: Example) -> None:
    if example.op.__name__ in ONNXRUNTIME_DIFFERS or opset_of(example) != 21:
        pytest.skip(ONNXRUNTIME_DIFFERS.get(example.op.__name__, "onnxruntime lacks the opset"))
    graph = example.graph()
    feeds = example.feeds(example.sizes[0])
    outputs = onnxruntime_outputs(written(graph), feeds)
    if outputs is None:
        pytest.skip("onnxruntime lacks an operator for a type")
    assert_agree(graph, feeds, outputs)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_writing_the_same_graph_twice_gives_the_same_bytes(example: Example) -> None:
    opset = opset_of(example)
    assert written(example.graph(), opset) == written(example.graph(), opset)


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda c: c.__name__)
def test_every_operation_has_a_writer_or_is_known_to_have_none(op: type[Op]) -> None:
    assert (find_writer(op) is None) is (op in (Input, Constant, KeptBoxes, PairwiseCoupling))


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_recognised_again(masked: bool) -> None:
    g = Graph("attention")
    q, k = g.input("q", F, ("b", 4, "s", 8)), g.input("k", F, ("b", 2, "t", 8))
    mask = g.input("m", "bool", ("b", 1, 1, "t")) if masked else None
    g.output("y", g.attention(q, k, k, mask))
    again = optimize_graph(reloaded(g))
    assert [n.op.title for n in again.nodes].count("Attention") == 1
    rng = np.random.default_rng(0)
    shapes = {"q": (2, 4, 3, 8), "k": (2, 2, 5, 8)}
    feeds: dict[str, Any] = {n: rng.standard_normal(s, np.float32) for n, s in shapes.items()}
    if masked:
        feeds["m"] = np.arange(10).reshape(2, 1, 1, 5) < 3
    assert_agree(g, feeds, cpu_eval_graph(again, feeds))


# ---- models ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[(n, o) for n in NAMES for o in (False, True)], ids=str)
def generated(request: pytest.FixtureRequest) -> tuple[str, bytes, Graph]:
    name, optimize = request.param
    data = model_bytes(name)
    graph = load_graph_from_onnx_bytes(data)
    return name, data, optimize_graph(graph) if optimize else graph


@pytest.mark.parametrize("size", [None, 5])
def test_models_compute_the_same_when_they_were_written(
    generated: tuple[str, bytes, Graph], size: int | None
) -> None:
    name, _, graph = generated
    dims = {} if size is None else dict.fromkeys(("batch", "seq", "past"), size)
    feeds = inputs(name, **{d: n for d, n in dims.items() if d in ARCHITECTURES[name].dims})
    data = written(graph)
    assert_agree(graph, feeds, cpu_eval_graph(load_graph_from_onnx_bytes(data), feeds))
    outputs = onnxruntime_outputs(data, feeds)
    assert outputs is not None
    assert_agree(graph, feeds, outputs)


def test_what_was_written_is_written_the_same_again(generated: tuple[str, bytes, Graph]) -> None:
    _, _, graph = generated
    once = written(reloaded(graph))
    assert written(load_graph_from_onnx_bytes(once)) == once


@pytest.mark.parametrize("name", [n for n in NAMES if n != "if_loop"])
def test_a_model_that_was_loaded_is_a_fixpoint_at_once(name: str) -> None:
    data = written(load_graph_from_onnx_bytes(model_bytes(name)))
    assert written(load_graph_from_onnx_bytes(data)) == data


def test_no_more_operators_than_the_file_had() -> None:
    for name in ("transformer_layer", "gqa_decoder_step"):
        data = model_bytes(name)
        again = graph_to_model_proto(load_graph_from_onnx_bytes(data))
        kept = {"Conv", "MatMul", "Softmax", "LayerNormalization", "Gelu"}
        before, after = (
            sorted(n.op_type for n in m.graph.node if n.op_type in kept)
            for m in (onnx.load_from_string(data), again)
        )
        assert after == before


# ---- sizes ----------------------------------------------------------------------------------


def test_symbolic_sizes_are_dim_params_that_load_again() -> None:
    g = Graph("sizes")
    past, seq = g.symbol("past", lo=0), g.symbol("seq")
    cache = g.input("cache", F, (2, seq + past))
    x = g.input("x", F, (2, "seq"))
    g.output("y", g.concat([cache, x], 1))
    g.output("n", g.size_tensor(np.array([past, past * seq, (past + 3) // 2], object)))
    again = reloaded(g)
    assert list(again.symbols) == ["past", "seq"]
    feeds = {"x": np.ones((2, 3), np.float32), "cache": np.ones((2, 7), np.float32)}
    assert cpu_eval_graph(again, feeds)["n"].tolist() == [4, 12, 3]
    y = onnx.load_from_string(written(g)).graph.output[0].type.tensor_type.shape
    assert [d.dim_param or d.dim_value for d in y.dim] == [2, "past+2*seq"]


def test_a_size_is_computed_once() -> None:
    g = Graph("once")
    x = g.input("x", F, ("a", "b", 4))
    a, b = x.shape[:2]
    for i in range(3):
        g.output(f"y{i}", g.broadcast(g.scalar(i, DType.FLOAT32), (a * b + 1, i + 2)))
    operators = [n.op_type for n in graph_to_model_proto(g).graph.node]
    assert operators.count("Shape") == 2
    assert operators.count("Mul") == 1


@pytest.mark.parametrize("n", [0, 1, 5, 8])
def test_division_of_sizes_rounds_down_also_below_zero(n: int) -> None:
    g = Graph("floor")
    size = g.symbol("n", lo=0)
    g.input("x", F, ("n",))
    quotient = (size - 7) // (size + 2)
    g.output("y", g.size_tensor(np.array([quotient, 1 - size], object)))
    outputs = onnxruntime_outputs(written(g), {"x": np.zeros(n, np.float32)})
    assert outputs is not None
    assert outputs["y"].tolist() == [(n - 7) // (n + 2), 1 - n]


def test_views_need_no_computed_sizes_where_numbers_say_it() -> None:
    g = Graph("views")
    x = g.input("x", F, ("batch", "seq", 64))
    heads = g.view(x, (*x.shape[:2], 4, 16))
    g.output("heads", heads)
    g.output("rows", g.view(g.permute(heads, (2, 0, 1, 3)), (4, x.shape[0], x.shape[1] * 16)))
    g.output("one", g.unsqueeze(x, [1, 3]))
    operators = [n.op_type for n in graph_to_model_proto(g).graph.node]
    assert "Shape" not in operators
    assert "Unsqueeze" in operators


def test_a_broadcast_that_operators_do_not_do_by_themselves_is_written() -> None:
    g = Graph("rows")
    x, y = (g.input(n, F, (1, "n")) for n in "xy")
    shape = (g.symbol("m"), x.shape[1])
    g.input("rows", F, ("m",))
    g.output("z", g.broadcast(x, shape) + g.broadcast(y, shape))
    one = np.ones((1, 2), np.float32)
    feeds = {"x": one, "y": one, "rows": np.ones(3, np.float32)}
    outputs = onnxruntime_outputs(written(g), feeds)
    assert outputs is not None
    assert outputs["z"].shape == (3, 2)


def test_a_size_that_no_input_shows_is_an_error() -> None:
    g = Graph("hidden")
    g.output("y", g.iota(g.symbol("n")))
    with pytest.raises(UnsupportedModelError, match="no input shows the size 'n'"):
        graph_to_onnx_bytes(g)


ROWS = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n] x, int64 m) => (float[k, j] rows) {
    rows = Loop (m, ) <
        body = b (int64 i, bool c) => (bool d, float[j] r) {
            d = Identity(c)
            one = Constant <value = int64[1] {1}> ()
            zero = Constant <value = int64[1] {0}> ()
            at = Reshape(i, one)
            end = Add(at, one)
            r = Slice(x, at, end, zero)
        }
    >
}"""


def test_sizes_of_a_body_may_be_those_of_the_model_and_its_own() -> None:
    # a slice from the iteration on is clipped to what the model's input shows
    graph = load_graph_from_onnx_bytes(onnx.parser.parse_model(ROWS).SerializeToString())
    feeds = {"x": np.arange(5, dtype=np.float32), "m": np.array(3)}
    outputs = onnxruntime_outputs(written(graph), feeds)
    assert outputs is not None
    assert outputs["rows"].tolist() == [[0], [1], [2]]


# ---- names, defaults, metadata --------------------------------------------------------------


def test_texts_of_sizes_do_not_depend_on_which_symbol_came_first() -> None:
    def data(*names: str) -> bytes:
        g = Graph("order")
        sizes = [g.symbol(n) for n in names]
        g.output("y", g.relu(g.input("x", F, (sizes[0] + sizes[1],))))
        return graph_to_onnx_bytes(g)

    assert data("a", "b") == data("b", "a")


def test_names_are_kept() -> None:
    nodes = [
        node("MatMul", "x w", "h", "first"),
        node("Add", "h b", "s", "second"),
        node("Relu", "s", "y", "third"),
    ]
    weights = {"w": np.ones((3, 3), np.float32), "b": np.ones(3, np.float32)}
    m = model(nodes, [info("x", ("n", 3))], weights=weights)
    again = graph_to_model_proto(load_graph_from_onnx_bytes(m.SerializeToString()))
    assert [(n.name, list(n.input), list(n.output)) for n in again.graph.node] == [
        (n.name, list(n.input), list(n.output)) for n in nodes
    ]
    assert [t.name for t in again.graph.initializer] == ["w", "b"]


def test_invented_names_are_invented_anew() -> None:
    names = Names(["kn_Add_0"])
    assert names.prefer(["kn_Add_1", "mine"]) == "mine"
    assert names.prefer(["mine"]) is None
    assert [names.invent("Add"), names.invent("Add")] == ["kn_Add_1", "kn_Add_2"]


def test_one_value_may_be_several_outputs_and_an_input_an_output() -> None:
    g = Graph("outputs")
    x = g.input("x", F, (2,))
    y = g.relu(x)
    for name, value in {
        "a": y,
        "b": y,
        "c": x,
        "d": g.constant(np.array([1, 2], np.float32)),
    }.items():
        g.output(name, value)
    feeds = {"x": np.array([-1, 2], np.float32)}
    assert_agree(g, feeds, cpu_eval_graph(reloaded(g), feeds))


def test_initializers_that_may_be_fed_are_inputs_again() -> None:
    m = model(
        [node("Mul", "x scale", "y")],
        [info("x", ("n", 3)), info("scale", (3,))],
        weights={"scale": np.array([1, 2, 3], np.float32)},
    )
    again = graph_to_model_proto(load_graph_from_onnx_bytes(m.SerializeToString()))
    assert [i.name for i in again.graph.input] == ["x", "scale"]
    assert [t.name for t in again.graph.initializer] == ["scale"]


def test_defaults_of_inputs_are_initializers() -> None:
    g = Graph("defaults")
    x = g.input("x", F, (2,))
    g.output("y", x * g.input("k", F, (2,), default=np.array([2, 3], np.float32)))
    outputs = cpu_eval_graph(reloaded(g), {"x": np.array([1, 1], np.float32)})
    assert outputs["y"].tolist() == [2, 3]


def test_metadata_is_kept() -> None:
    m = model([node("Relu", "x", "y")])
    m.domain, m.doc_string = "org.example", "A model."
    helper.set_model_props(m, {"classes": "a,b"})
    again = graph_to_model_proto(load_graph_from_onnx_bytes(m.SerializeToString()))
    assert (again.domain, again.doc_string) == ("org.example", "A model.")
    assert {p.key: p.value for p in again.metadata_props} == {"classes": "a,b"}


def test_what_a_graph_assumes_is_in_the_metadata() -> None:
    m = model([node("Add", "x y", "z")], [info("x", ("a",)), info("y", ("b",))], ("z",))
    again = graph_to_model_proto(load_graph_from_onnx_bytes(m.SerializeToString()))
    assert [p.key for p in again.metadata_props] == ["kn.assumes"]
    assert "== 0 is True" in again.metadata_props[0].value


# ---- element types and weights --------------------------------------------------------------

STORED = [(d, 21) for d in DType if d.onnx_code <= 22] + [
    (DType.FLOAT4E2M1, 23),
    (DType.FLOAT8E8M0, 24),
    (DType.UINT2, 25),
    (DType.INT2, 25),
]


@pytest.mark.parametrize(("dtype", "opset"), STORED, ids=str)
def test_weights_of_every_element_type_are_stored_as_they_are(dtype: DType, opset: int) -> None:
    rng = np.random.default_rng(0)
    if dtype is DType.STRING:
        array: Any = np.array([["a", "ß"], ["", "long text"]], object)
    else:
        bits = rng.integers(0, 1 << min(dtype.bits, 8), (3, 5 * max(dtype.bits // 8, 1)), np.uint8)
        array = bits.astype(bool) if dtype is DType.BOOL else bits.view(dtype.numpy)
    g = Graph("weights")
    g.output("y", g.constant(array))
    proto = graph_to_model_proto(g, opset)
    (stored,) = proto.graph.initializer
    assert stored.data_type == dtype.onnx_code
    got = cpu_eval_graph(load_graph_from_onnx_bytes(proto.SerializeToString()), {})["y"]
    assert got.dtype == array.dtype
    assert got.tolist().__repr__() == array.tolist().__repr__()
    if dtype is not DType.STRING:
        assert numpy_helper.to_array(stored).tobytes() == array.tobytes()


def test_an_element_type_newer_than_the_opset_is_refused_by_name() -> None:
    g = Graph("new")
    g.output("y", g.cast(g.input("x", F, (2,)), DType.FLOAT4E2M1))
    with pytest.raises(UnsupportedModelError, match="opset 21 has no element type float4e2m1"):
        graph_to_onnx_bytes(g)
    assert graph_to_onnx_bytes(g, 23)


def big_graph() -> Graph:
    g = Graph("big")
    x = g.input("x", F, ("n", 64))
    for i in range(3):
        x = x @ g.constant(np.random.default_rng(i).standard_normal((64, 64)).astype(np.float32))
    g.output("y", x + g.constant(np.arange(64, dtype=np.float32)))
    return g


@pytest.mark.parametrize("external", [True, "weights.bin"])
def test_weights_go_into_a_file_beside_the_model(tmp_path: Path, external: str | bool) -> None:
    path = tmp_path / "m.onnx"
    save_graph_to_onnx_path(big_graph(), path, external_data=external)
    name = "m.onnx.data" if external is True else external
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["m.onnx", name])
    assert path.stat().st_size < 4096 < 3 * 64 * 64 * 4 <= (tmp_path / str(name)).stat().st_size
    feeds = {"x": np.ones((2, 64), np.float32)}
    assert_agree(big_graph(), feeds, cpu_eval_graph(load_graph_from_onnx_path(path), feeds))
    onnx.checker.check_model(str(path), full_check=True)


def test_a_model_may_replace_the_file_that_its_weights_are_mapped_from(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save_graph_to_onnx_path(big_graph(), path, external_data=True)
    graph = load_graph_from_onnx_path(path)
    before = path.read_bytes()
    save_graph_to_onnx_path(graph, path, external_data=True)
    assert path.read_bytes() == before
    feeds = {"x": np.ones((2, 64), np.float32)}
    assert_agree(big_graph(), feeds, cpu_eval_graph(load_graph_from_onnx_path(path), feeds))


# ---- what cannot be written -----------------------------------------------------------------


def test_an_error_names_every_operation_that_cannot_be_written() -> None:
    g = Graph("no")
    x = g.input("x", F, ("n", 3))
    g.output("p", g.push(PairwiseCoupling(3), x))
    g.output("q", g.push(BitCast(DType.INT32), x))
    with pytest.raises(UnsupportedModelError) as caught:
        graph_to_onnx_bytes(g)
    assert [o.operator for o in caught.value.operators] == ["PairwiseCoupling", "BitCast"]
    assert "BitCast exists from opset 26 on" in str(caught.value)


def test_axes_that_are_an_input_are_refused() -> None:
    m = model(
        [node("Squeeze", "x axes", "y")],
        [info("x", (1, "n")), info("axes", (1,), TensorProto.INT64)],
    )
    graph = load_graph_from_onnx_bytes(m.SerializeToString())
    with pytest.raises(UnsupportedModelError, match="input 'axes'"):
        graph_to_onnx_bytes(graph)


@pytest.mark.parametrize("opset", [20, 1000])
def test_an_opset_that_cannot_be_written_is_refused(opset: int) -> None:
    with pytest.raises(UsageError, match=f"opset {opset}: models are written for 21 to"):
        graph_to_onnx_bytes(big_graph(), opset)


def test_paths_that_cannot_be_written_are_errors_of_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        save_graph_to_onnx_path(big_graph(), tmp_path / "missing" / "m.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        save_graph_to_onnx_path(big_graph(), tmp_path / "folder.onnx")
    with pytest.raises(UsageError, match="external_data"):
        save_graph_to_onnx_path(big_graph(), tmp_path / "m.onnx", external_data="../w.bin")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.onnx"]


@pytest.mark.parametrize("opset", range(21, onnx.defs.onnx_opset_version() + 1))
def test_every_opset_that_may_be_asked_for_loads_again(opset: int) -> None:
    graph = load_graph_from_onnx_bytes(model_bytes("transformer_layer"))
    feeds = inputs("transformer_layer")
    data = written(graph, opset)
    assert onnx.load_from_string(data).opset_import[0].version == opset
    assert_agree(graph, feeds, cpu_eval_graph(load_graph_from_onnx_bytes(data), feeds))


def test_long_chains_are_written_without_recursion() -> None:
    g = Graph("long")
    x = y = g.input("x", F, ("n", 1))
    for i in range(10_000):
        y = g.unary("neg", y) if i % 3 else g.view(g.broadcast(y, (x.shape[0], 1)), y.shape)
        y = y + x
    g.output("y", y)
    assert len(reloaded(g).nodes) > 10_000
