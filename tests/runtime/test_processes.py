"""Prepared graphs in other processes: forked, spawned, pickled."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kn_runtime
from kn_graph.errors import UsageError
from kn_runtime import PrepareOptions
from models.generate import inputs, model_bytes

NAME = "residual_cnn"
SECONDS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "model.onnx").write_bytes(model_bytes(NAME))
    return tmp_path / "model.onnx"


def same(got: dict[str, Any], want: dict[str, Any]) -> bool:
    return all(np.array_equal(got[n], x) for n, x in want.items()) and list(got) == list(want)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_graph_from_a_file_is_pickled_as_how_it_was_loaded(path: Path, device: str) -> None:
    options = PrepareOptions(threads=1, strict=True)
    model = kn_runtime.load(path, device, optimize=False, options=options)
    again = pickle.loads(pickle.dumps(model))
    assert (str(again.device), again.options) == (device, options)
    assert len(again.graph.nodes) == len(model.graph.nodes)
    assert same(again.eval(inputs(NAME)), model.eval(inputs(NAME)))


def test_sizes_given_at_the_load_are_given_again(path: Path) -> None:
    batch = next(iter(kn_runtime.load(path).graph.symbols))
    again = pickle.loads(pickle.dumps(kn_runtime.load(path, dims={batch: 2})))
    assert batch not in again.graph.symbols


def test_a_graph_without_a_file_says_why_it_is_not_pickled() -> None:
    with pytest.raises(UsageError, match="load it by path, or in each process"):
        pickle.dumps(kn_runtime.load(model_bytes(NAME)))


def test_a_copy_is_the_graph_itself(path: Path) -> None:
    model = kn_runtime.load(path)
    assert copy.copy(model) is model
    assert copy.deepcopy({"model": model})["model"] is model


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system"
)
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_forked_process_calls_what_its_parent_has_called(path: Path) -> None:
    """Threads of the parent's pool are not there in the child."""
    model = kn_runtime.load(path, "cpu", options=PrepareOptions(threads=2))
    feeds = inputs(NAME)
    want = model.eval(feeds)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=lambda: answers.put(same(model.eval(feeds), want)))
    child.start()
    try:
        assert answers.get(timeout=SECONDS)
    finally:
        child.kill()
        child.join()
