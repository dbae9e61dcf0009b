"""Sessions: what is loaded, what they say of it, and what their options change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import kn_runtime.ort
from kn_graph.errors import KnWarning
from tests.runtime.ort.both import F32, MODELS, assert_same, both, session
from tests.small_models import info, model, node

DIGITS = Path(__file__).parents[3] / "models" / "digits.onnx"

FACTS = (
    "producer_name", "graph_name", "domain", "description", "graph_description", "version",
    "custom_metadata_map",
)  # fmt: skip

X = np.arange(3, dtype=F32)


# ---- metadata ------------------------------------------------------------------------------


def described(made: Any) -> Any:
    """Return all that a session says of its model, in simple types."""
    parts = (made.get_inputs(), made.get_outputs(), made.get_overridable_initializers())
    args = [[(str(a), a.name, a.type, a.shape) for a in part] for part in parts]
    meta = made.get_modelmeta()
    return [args, [getattr(meta, f) for f in FACTS]]


MORE_KNOWN = {"sum": ["n"], "unranked sum": [], "words": [1, 2], "numbers": [1, 2]}
"""Where the graph knows a size of the output that onnxruntime does not infer."""


@pytest.mark.parametrize("name", [n for n in MODELS if n not in MORE_KNOWN])
def test_a_session_describes_its_model_as_onnxruntime_does(name: str) -> None:
    assert_same(*both(lambda module: described(session(module, name))))


@pytest.mark.parametrize("name", MORE_KNOWN)
def test_sizes_that_the_graph_knows_are_said(name: str) -> None:
    assert session(kn_runtime.ort, name).get_outputs()[0].shape == MORE_KNOWN[name]


@pytest.mark.parametrize(
    "source", [str(DIGITS), DIGITS, DIGITS.read_bytes()], ids=["text", "path", "bytes"]
)
def test_ways_of_giving_a_model(source: Any) -> None:
    assert_same(*both(lambda module: described(module.InferenceSession(source))))


# ---- models that cannot be used ------------------------------------------------------------

BAD: dict[str, Any] = {
    "absent": "absent.onnx",
    "not a model": b"nothing of the kind",
    "nothing": b"",
    "a number": 3,
    "text file": str(Path(__file__)),
    "no operator": model([node("Nothing", "x", "y")]),
    "custom operator": model([node("F", "x", "y", domain="my.own")], opsets={"": 21, "my.own": 1}),
    "too few inputs": model([node("Add", "x", "y")]),
    "sizes": model(
        [node("MatMul", "x w", "y")], [info("x", [2, 3])], weights={"w": np.ones((4, 5), F32)}
    ),
    "types": model([node("Relu", "x", "y")], [info("x", ["n"], TensorProto.STRING)]),
}


def load(module: ModuleType, source: Any) -> Any:
    proto = hasattr(source, "SerializeToString")
    return module.InferenceSession(source.SerializeToString() if proto else source)


@pytest.mark.parametrize("source", BAD.values(), ids=BAD)
def test_models_that_cannot_be_used_raise_the_same_class(source: Any) -> None:
    theirs, ours = both(lambda module: load(module, source))
    assert theirs.error
    assert_same(theirs, ours, words=False)


OTHERWISE = {
    "undefined tensor": (model([node("Add", "x q", "y")]), "InvalidArgument", "InvalidGraph"),
    "undefined output": (model([node("Relu", "x", "y")], outputs=["q"]), "Fail", "InvalidGraph"),
    "attribute": (model([node("Relu", "x", "y", a=1)]), "InvalidGraph", "NotImplemented"),
    "version": (model([node("Relu", "x", "y")], opset=99), "Fail", ""),
}
"""What raises another class, or nothing, on purpose or for want of a difference that matters."""


@pytest.mark.filterwarnings("ignore::kn_graph.errors.KnWarning")
@pytest.mark.parametrize("name", OTHERWISE)
def test_known_differences_in_classes(name: str) -> None:
    proto, theirs, ours = OTHERWISE[name]
    found = both(lambda module: load(module, proto))
    assert (found[0].error, found[1].error) == (theirs, ours)


def test_errors_keep_their_cause_and_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(model([node("Nothing", "x", "y")]).SerializeToString())
    with pytest.raises(Exception, match="Nothing-21 x1") as caught:
        kn_runtime.ort.InferenceSession(path)
    assert str(path) in str(caught.value)
    assert type(caught.value.__cause__).__name__ == "UnsupportedModelError"


# ---- providers -----------------------------------------------------------------------------

CPU = "CPUExecutionProvider"

PROVIDERS: list[Any] = [
    None,
    [],
    [CPU],
    [(CPU, {"arena_extend_strategy": "kSameAsRequested"})],
    [CPU, CPU],
    ["CUDAExecutionProvider", CPU],
    [("CUDAExecutionProvider", {"device_id": 0}), CPU],
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("providers", PROVIDERS, ids=map(str, range(len(PROVIDERS))))
def test_providers(providers: Any) -> None:
    def call(module: ModuleType) -> Any:
        made = session(module, "sub", providers=providers)
        return made.get_providers(), made.get_provider_options()

    assert_same(*both(call))


@pytest.mark.parametrize("module", [onnxruntime, kn_runtime.ort], ids=["theirs", "ours"])
@pytest.mark.parametrize(
    ("providers", "text"),
    [
        (["CUDAExecutionProvider", CPU], "'CUDAExecutionProvider' is not in available provider"),
        ([CPU, CPU], f"Duplicate provider '{CPU}' encountered"),
    ],
)
def test_providers_that_are_left_out_are_warned_of(
    module: ModuleType, providers: Any, text: str
) -> None:
    with pytest.warns(UserWarning, match=text):
        session(module, "sub", providers=providers)


@pytest.mark.parametrize(
    ("providers", "options", "text"),
    [([CPU], [{}, {}], "same length"), ([(CPU, {})], [{}], "Only string values")],
)
def test_names_and_options_that_do_not_belong_together_are_refused(
    providers: Any, options: Any, text: str
) -> None:
    with pytest.raises(ValueError, match=text):  # onnxruntime prints this, and takes the CPU
        session(kn_runtime.ort, "sub", providers=providers, provider_options=options)


def test_unknown_arguments_are_warned_of() -> None:
    with pytest.warns(KnWarning, match="'provders' is unknown"):
        session(kn_runtime.ort, "sub", provders=[CPU])


def test_functions_of_the_module() -> None:
    names = ("get_device", "get_version_string", "has_collective_ops")
    assert_same(*both(lambda module: [getattr(module, n)() for n in names]))
    assert CPU in kn_runtime.ort.get_available_providers()
    assert set(kn_runtime.ort.get_all_providers()) <= set(onnxruntime.get_all_providers())
    assert kn_runtime.ort.__version__ == onnxruntime.__version__


# ---- options -------------------------------------------------------------------------------


def fields(options: Any) -> dict[str, Any]:
    """Return the fields of options in simple types."""
    names = [n for n in dir(options) if not n.startswith("_")]
    values = {n: getattr(options, n) for n in names}
    simple = {n: v for n, v in values.items() if not callable(v)}
    return {n: v if isinstance(v, (bool, str)) else int(v) for n, v in simple.items()}


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_options_have_the_fields_of_onnxruntime_and_their_defaults(kind: str) -> None:
    assert_same(*both(lambda module: fields(getattr(module, kind)())))


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_what_is_set_is_kept(kind: str) -> None:
    def call(module: ModuleType) -> Any:
        options = getattr(module, kind)()
        for name, value in fields(options).items():
            if isinstance(value, str):
                setattr(options, name, "text")
            elif not name.startswith(("execution", "graph")):
                setattr(options, name, not value if isinstance(value, bool) else 3)
        return fields(options)

    assert_same(*both(call))


def _set(name: str, value: Any) -> Callable[[ModuleType], Any]:
    def call(module: ModuleType) -> Any:
        options = module.SessionOptions()
        setattr(options, name, value)
        return fields(options)[name]

    return call


OPTIONS: dict[str, Callable[[ModuleType], Any]] = {
    "unknown field": _set("no_such_field", 1),
    "text for a number": _set("intra_op_num_threads", "a"),
    "float for a number": _set("intra_op_num_threads", 2.5),
    "number for a level": _set("graph_optimization_level", 99),
    "number for a flag": _set("enable_profiling", 1),
    "number for a text": _set("logid", 3),
    "unknown entry": lambda m: m.SessionOptions().get_session_config_entry("none"),
    "unknown run entry": lambda m: m.RunOptions().get_run_config_entry("none"),
    "number for an entry": lambda m: m.SessionOptions().add_session_config_entry("a", 1),
    "options": lambda m: session(m, "sub", sess_options={"a": 1}),
    "enumerations": lambda m: [
        [(n, int(v)) for n, v in getattr(m, kind).__members__.items()]
        for kind in ("GraphOptimizationLevel", "ExecutionMode", "OrtMemType", "OrtAllocatorType")
    ],
    "levels": lambda m: [repr(m.GraphOptimizationLevel.ORT_ENABLE_ALL)] * 2,
}


@pytest.mark.parametrize("call", OPTIONS.values(), ids=OPTIONS)
def test_options_refuse_what_onnxruntime_refuses(call: Callable[[ModuleType], Any]) -> None:
    assert_same(*both(call), words=False)


def test_classes_of_the_api_may_be_derived_from() -> None:
    def call(module: ModuleType) -> Any:
        options = type("Mine", (module.SessionOptions,), {})()
        options.intra_op_num_threads = 1
        made = type("Mine", (module.InferenceSession,), {"extra": 1})(DIGITS, options)
        made.more = 2
        result = made.run(None, {"image": np.zeros((1, 1, 8, 8), F32)})
        return made.extra, made.more, options.intra_op_num_threads, result

    assert_same(*both(call))


def test_entries_are_kept() -> None:
    def call(module: ModuleType) -> Any:
        options, run = module.SessionOptions(), module.RunOptions()
        options.add_session_config_entry("a", "b")
        run.add_run_config_entry("c", "d")
        return options.get_session_config_entry("a"), run.get_run_config_entry("c")

    assert_same(*both(call))


def with_options(module: ModuleType, change: Callable[[Any], object]) -> Any:
    options = module.SessionOptions()
    change(options)
    return options


@pytest.mark.parametrize(("name", "size"), [("n", 2), ("other", 5)])
def test_free_dimensions_are_fixed_by_name(name: str, size: int) -> None:
    def call(module: ModuleType) -> Any:
        change = lambda o: o.add_free_dimension_override_by_name(name, size)  # noqa: E731
        made = session(module, "sub", sess_options=with_options(module, change))
        return described(made)[0][:2]

    assert_same(*both(call))


def test_a_fixed_dimension_is_checked() -> None:
    def call(module: ModuleType) -> Any:
        change = lambda o: o.add_free_dimension_override_by_name("n", 2)  # noqa: E731
        made = session(module, "sub", sess_options=with_options(module, change))
        return made.run(None, {"a": np.ones((5, 3), F32), "b": np.ones((2, 3), F32)})

    assert_same(*both(call))


def test_free_dimensions_are_fixed_by_denotation() -> None:
    proto = model([node("Neg", "x", "y")], [info("x", ["n", "m"])])
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"

    def call(module: ModuleType) -> Any:
        change = lambda o: o.add_free_dimension_override_by_denotation("DATA_BATCH", 4)  # noqa: E731
        options = with_options(module, change)
        return module.InferenceSession(proto.SerializeToString(), options).get_inputs()[0].shape

    assert_same(*both(call))


def test_initializers_are_replaced() -> None:
    def call(module: ModuleType) -> Any:
        value = module.OrtValue.ortvalue_from_numpy(np.full(1, 10, F32))
        options = with_options(module, lambda o: o.add_initializer("w", value))
        return session(module, "constant", sess_options=options).run(None, {"x": X})

    assert_same(*both(call))


def test_the_optimized_model_is_written_and_runs_on_onnxruntime(tmp_path: Path) -> None:
    path = tmp_path / "better.onnx"
    options = kn_runtime.ort.SessionOptions()
    options.optimized_model_filepath = str(path)
    kn_runtime.ort.InferenceSession(DIGITS, options)
    image = np.random.default_rng(0).random((2, 1, 8, 8), F32)
    before, after = (
        onnxruntime.InferenceSession(p).run(None, {"image": image})[0] for p in (DIGITS, path)
    )
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


def test_the_optimizer_can_be_switched_off() -> None:
    sizes = []
    for level in kn_runtime.ort.GraphOptimizationLevel:
        options = kn_runtime.ort.SessionOptions()
        options.graph_optimization_level = level
        made = kn_runtime.ort.InferenceSession(DIGITS, options)
        sizes.append(len(next(iter(made._model._graphs.values())).graph.nodes))
    assert sizes[0] > sizes[1]
    assert len(set(sizes[1:])) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_is_that_of_the_options(threads: int) -> None:
    options = kn_runtime.ort.SessionOptions()
    options.intra_op_num_threads = threads
    made = kn_runtime.ort.InferenceSession(DIGITS, options)
    prepared = next(iter(made._model._graphs.values()))
    assert prepared.options.worker_threads == threads


def test_a_profile_is_a_trace_with_runs_and_steps(tmp_path: Path) -> None:
    def call(module: ModuleType) -> Any:
        options = module.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / module.__name__)
        made = module.InferenceSession(DIGITS, options)
        for _ in range(3):
            made.run(None, {"image": np.zeros((1, 1, 8, 8), F32)})
        assert made.get_profiling_start_time_ns() > 0
        path = made.end_profiling()
        events = json.loads(Path(path).read_text())
        kinds = {e["cat"] for e in events}
        needed = {"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"}
        assert all(needed <= set(e) for e in events)
        runs = sum(e["name"] == "model_run" for e in events)
        return runs, sorted(kinds), made.end_profiling()

    theirs, ours = both(call)
    assert theirs.value == ours.value == (3, ["Node", "Session"], "")


def test_external_data_of_bytes_is_looked_for_where_the_entry_says(tmp_path: Path) -> None:
    import onnx

    proto = model([node("Add", "x w", "y")], weights={"w": np.arange(3, dtype=F32)})
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)

    def call(module: ModuleType) -> Any:
        options = module.SessionOptions()
        entry = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(entry, str(tmp_path))
        return module.InferenceSession(path.read_bytes(), options).run(None, {"x": X})

    assert_same(*both(call))


# ---- what is not there ---------------------------------------------------------------------


def test_what_is_not_there_says_so_by_name() -> None:
    made = session(kn_runtime.ort, "sub")
    lacking: list[tuple[Any, str]] = [
        (kn_runtime.ort, "SparseTensor"),
        (made, "get_tuning_results"),
        (made.get_inputs()[0], "dtype"),
        (made.get_modelmeta(), "author"),
        (kn_runtime.ort.SessionOptions(), "no_field"),
        (made.io_binding(), "bind_nothing"),
    ]
    for thing, name in lacking:
        assert not hasattr(thing, name)
        with pytest.raises(AttributeError, match=f"{name}.*please report this line"):
            getattr(thing, name)
    with pytest.raises(AttributeError, match="no_field"):
        kn_runtime.ort.SessionOptions().no_field = 1
    with pytest.raises(Exception, match="custom operators of 'ops"):
        kn_runtime.ort.SessionOptions().register_custom_ops_library("ops.so")
