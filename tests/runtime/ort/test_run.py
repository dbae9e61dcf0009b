"""`InferenceSession.run` gives, or raises, what onnxruntime's does."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kn_runtime.ort
from tests.runtime.ort.both import F32, MODELS, assert_same, both, outcome, session

A = np.arange(6, dtype=F32).reshape(2, 3)

FEEDS: list[tuple[str, Any]] = [
    ("sub", {"a": A, "b": A}),
    ("sub", {"b": A, "a": A + 1}),
    ("sub", {}),
    ("sub", {"a": A}),
    ("sub", {"a": A, "b": A, "c": A}),
    ("sub", {"a": A, "c": A}),
    ("sub", {1: A}),
    ("sub", {"a": A.astype("f8"), "b": A}),
    ("sub", {"a": A, "b": np.array([["x"]])}),
    ("sub", {"a": A.tolist(), "b": A}),
    ("sub", {"a": [[1, 2, 3]], "b": A[:1]}),
    ("sub", {"a": [[True, False, True]], "b": A[:1]}),
    ("sub", {"a": [["u", "v", "w"]], "b": A[:1]}),
    ("sub", {"a": A[0], "b": A}),
    ("sub", {"a": A, "b": [A, A]}),
    ("sub", {"a": A, "b": np.ones((2, 4), F32)}),
    ("sub", {"a": A, "b": np.ones((1, 3), F32)}),  # the same name, and other sizes
    ("sub", {"a": A.T.copy().T, "b": A}),
    ("sub", {"a": A[:, ::-1], "b": A}),
    ("sub", {"a": A[:0], "b": A[:0]}),
    ("sub", {"a": A, "b": 3.0}),
    ("sub", {"a": A, "b": F32(3)}),
    ("sub", {"a": A, "b": object()}),
    ("sub", {"a": A, "b": "text"}),
    ("sub", {"a": A, "b": (1, 2)}),
    ("sub", {"a": A, "b": {}}),
    ("alike", {"x": A}),
    ("scalar", {"x": np.array(3, F32)}),
    ("scalar", {"x": [3.0]}),  # an input declared [] takes any rank
    ("scalar", {"x": A}),
    ("scalar", {"x": 3.0}),
    ("scalar", {"x": True}),
    ("scalar", {"x": np.float64(3)}),
    ("scalar", {"x": "3"}),
    ("count", {"x": 3}),
    ("count", {"x": np.int64(3)}),
    ("unranked", {"x": A}),
    ("unranked", {"x": np.array(2, F32)}),
    ("unranked sum", {"x": A}),
    ("fixed", {"x": A}),
    ("fixed", {"x": A[:1]}),
    ("empty", {"x": A}),
    ("empty", {"x": A[:0]}),
    ("default", {"x": A[0]}),
    ("default", {"x": A[0], "w": np.full(1, 5, F32)}),
    ("old default", {"x": A[0]}),
    ("constant", {"x": A[0], "w": np.full(1, 5, F32)}),
    ("sequence", {"x": [A, A[0]]}),
    ("sequence", {"x": []}),
    ("sequence", {"x": (A, A)}),
    ("sequence", {"x": [A.astype("f8")]}),
    ("sequence", {"x": [[1.0]]}),
    ("sequence", {"x": [1.0]}),
    ("texts", {"x": [np.array(["a", "b"]), np.array(["c"])]}),
    ("has", {"x": None}),
    ("has", {"x": np.ones(2, F32)}),
    ("has", {}),
    ("optional", {"x": None}),
    ("optional", {"x": np.ones(2, F32)}),
    ("maps", {"x": A[:, :2]}),
    ("named maps", {"x": A[:, :2]}),
    *[("words", {"x": x}) for x in ({"a": 1.0}, {"b": 2, "q": 3.0}, {}, {1: 2.0}, {"a": "x"})],
    *[("numbers", {"x": x}) for x in ({1: 2.0}, {2: F32(3)}, {"a": 1.0})],
    ("nothing fed", {}),
    ("found", {"x": A[0]}),
    ("gather", {"x": A[0], "i": np.array([2, -1])}),
    ("reshape", {"x": A.ravel(), "s": np.array([3, -1])}),
    ("reshape", {"x": A.ravel(), "s": np.array([-1])}),
    *[(name, {"x": [[[1, 2, 3]]]}) for name in MODELS if name.startswith("typed")],
    *[(name, {"x": [[[1.5, 2.5, 3.5]]]}) for name in MODELS if name.startswith("typed")],
    *[(name, {"x": [[["u", "v", "w"]]]}) for name in MODELS if name.startswith("typed")],
    *[(name, {"x": np.zeros((1, 1, 3), np.uint32)}) for name in MODELS if name.startswith("typed")],
    *[("typed 8", {"x": np.array([[x]])}) for x in (["a", "bb", ""], [1, 2, 3])],
    ("typed 8", {"x": np.array([[["a", 1, None]]], object)}),
]


VAGUE = ("tensor to be added", "C type string", "Iterable of <class 'numpy.ndarray'>")
"""Texts of onnxruntime that do not say what was given."""


def place(rows: list[Any]) -> list[str]:
    return [f"{number} {row[0]}" for number, row in enumerate(rows)]


@pytest.mark.parametrize(("name", "feed"), FEEDS, ids=place(FEEDS))
def test_feeds(name: str, feed: Any) -> None:
    theirs, ours = both(lambda module: session(module, name).run(None, feed))
    vague = any(text in theirs.text for text in VAGUE)
    assert_same(theirs, ours, words=not vague)


FAILURES: list[tuple[str, Any]] = [
    ("sub", {"a": A, "b": np.ones((3, 3), F32)}),
    ("sub", {"a": A, "b": None}),
    ("sequence", {"x": A}),
    ("sequence", {"x": None}),
    ("words", {"x": A}),
    ("words", {"x": None}),
    ("words", {"x": [1]}),
    ("reshape", {"x": A.ravel(), "s": np.array([4, -1])}),
    ("reshape", {"x": A.ravel(), "s": np.array([4, 4])}),
    ("product", {"a": A, "b": A}),
    ("sum", {"a": A[0], "b": A[0, :2]}),
]
"""Where texts differ: those of kernels, and ones that name nothing."""


@pytest.mark.parametrize(("name", "feed"), FAILURES, ids=place(FAILURES))
def test_failures_have_the_same_class(name: str, feed: Any) -> None:
    theirs, ours = both(lambda module: session(module, name).run(None, feed))
    assert theirs.error
    assert_same(theirs, ours, words=False)


def test_an_index_out_of_range_fails_with_another_class_and_says_which() -> None:
    feed = {"x": A[0], "i": np.array([7])}
    theirs, ours = both(lambda module: session(module, "gather").run(None, feed))
    assert (theirs.error, ours.error) == ("InvalidArgument", "Fail")
    assert "index 7 is out of range for axis 0 of size 3" in ours.text


NAMES: list[Any] = [
    None, [], ["y"], ["z"], ["z", "y"], ["y", "y"], ("z",), {"y"}, ["nope"], ["a"], "y", [1], 3
]  # fmt: skip


@pytest.mark.parametrize("names", NAMES, ids=map(str, NAMES))
def test_output_names(names: Any) -> None:
    theirs, ours = both(lambda module: session(module, "sub").run(names, {"a": A, "b": A}))
    assert_same(theirs, ours, words=theirs.error == "InvalidArgument")


CALLS: dict[str, Callable[[ModuleType, Any], Any]] = {
    "a list": lambda m, s: s.run(None, [A, A]),
    "nothing": lambda m, s: s.run(None, None),
    "keywords": lambda m, s: s.run(output_names=None, input_feed={"a": A, "b": A}),
    "options": lambda m, s: s.run(None, {"a": A, "b": A}, m.RunOptions()),
    "no options": lambda m, s: s.run(None, {"a": A, "b": A}, 3),
    "terminated": lambda m, s: s.run(None, {"a": A, "b": A}, terminated(m)),
    "an OrtValue": lambda m, s: s.run(None, {"a": m.OrtValue.ortvalue_from_numpy(A), "b": A}),
    "twice": lambda m, s: [s.run(None, {"a": A * k, "b": A}) for k in (1, 2, 3)],
    "other sizes": lambda m, s: [s.run(None, {"a": A[:k], "b": A[:k]}) for k in (2, 1, 0, 2)],
    "then a wrong one": lambda m, s: (
        s.run(None, {"a": A, "b": A}), s.run(None, {"a": A, "b": A.astype("f8")})
    ),
}  # fmt: skip


def terminated(module: ModuleType) -> Any:
    options = module.RunOptions()
    options.terminate = True
    return options


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls(call: Callable[[ModuleType, Any], Any]) -> None:
    theirs, ours = both(lambda module: call(module, session(module, "sub")))
    assert_same(theirs, ours, words="incompatible" not in theirs.text)


def test_results_belong_to_the_caller() -> None:
    ours = session(kn_runtime.ort, "sub")
    first = ours.run(None, {"a": A, "b": A})[1]
    kept = first.copy()
    ours.run(None, {"a": A + 9, "b": A})
    np.testing.assert_array_equal(first, kept)
    first[...] = 0  # it is writable


def test_sizes_that_contradict_each_other_are_both_named() -> None:
    feed = {"a": A, "b": np.ones((3, 3), F32)}
    ours = outcome(lambda: session(kn_runtime.ort, "sub").run(None, feed))
    assert "is 2 by axis 0 of input 'a', but 3 by axis 0 of input 'b'" in ours.text


def test_what_numpy_has_no_type_for_comes_as_ml_dtypes() -> None:
    from ml_dtypes import bfloat16
    from onnx import TensorProto

    from tests.small_models import info, model, node

    wide = [info(n, [2], TensorProto.BFLOAT16) for n in "xy"]
    proto = model([node("Identity", "x", "y")], wide[:1], wide[1:])
    ours = kn_runtime.ort.InferenceSession(proto.SerializeToString())
    assert ours.run(None, {"x": np.ones(2, bfloat16)})[0].dtype == bfloat16


def test_asynchronous_runs_hand_results_or_the_error_to_the_callback() -> None:
    from queue import Queue

    def call(module: ModuleType, feed: Any) -> Any:
        answers: Queue[Any] = Queue()
        made = session(module, "sub")
        made.run_async(None, feed, lambda *found: answers.put(found), "mine")
        return answers.get(timeout=20)

    assert_same(*both(lambda module: call(module, {"a": A, "b": A})))
    theirs, ours = both(lambda module: call(module, {"a": A, "b": A.astype("f8")}))
    assert ours.value[:2] == theirs.value[:2] == ([], "mine")
    assert ours.value[2].startswith(theirs.value[2])
    assert_same(*both(lambda module: call(module, {"a": A})))
