"""What holds for every operation, over the table of examples."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import kn_graph.ops
from kn_graph import cpu_eval_graph, optimize_graph
from kn_graph.graph import Graph
from kn_graph.op import Op
from tests.ops.example import Example
from tests.ops.examples import EXAMPLES as TENSOR_EXAMPLES
from tests.ops.examples_control import CONTROL_EXAMPLES

EXAMPLES = [*TENSOR_EXAMPLES, *CONTROL_EXAMPLES]
ROOT = Path(kn_graph.ops.__file__).parents[1]


def all_operations() -> list[type[Op]]:
    """Return every operation class of the package."""
    for module in pkgutil.iter_modules(kn_graph.ops.__path__, "kn_graph.ops."):
        importlib.import_module(module.name)
    found: list[type[Op]] = []
    stack = [Op]
    while stack:
        for cls in stack.pop().__subclasses__():
            stack.append(cls)
            abstract = bool(cls.__subclasses__())
            if cls.__module__.startswith("kn_graph.") and not abstract:
                found.append(cls)
    return sorted(found, key=lambda c: c.__name__)


OPERATIONS = all_operations()


def name_of(example: Example) -> str:
    return f"{example.op.__name__}{'-' if example.note else ''}{example.note}"


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda c: c.__name__)
def test_operation_is_complete(op: type[Op]) -> None:
    assert "infer" in vars(op), "no type rule"
    assert "eval" in vars(op) or op.__name__ == "Input", "no reference"
    assert op.__doc__ is not None
    assert "Shapes:" in op.__doc__, "the docstring says nothing about shapes"
    assert any(e.op is op for e in EXAMPLES), "no row in tests/ops/examples.py"


@pytest.mark.parametrize("op", [o for o in OPERATIONS if not o.internal], ids=lambda c: c.__name__)
def test_operation_is_reached_by_a_builder_or_converter(op: type[Op]) -> None:
    texts = [p.read_text() for d in ("builder", "onnx") for p in (ROOT / d).glob("*.py")]
    texts.append((ROOT / "graph.py").read_text())
    assert any(f"{op.__name__}(" in t for t in texts)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_example_contains_its_operation_and_verifies(example: Example) -> None:
    graph = example.graph()
    assert any(isinstance(n.op, example.op) for n in graph.nodes)
    graph.verify()
    assert example.op.__name__ in str(graph) or graph.nodes


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_types_hold_and_copies_agree_at_all_sizes(example: Example) -> None:
    graph = example.graph()
    for sizes in example.sizes:
        feeds = example.feeds(sizes)
        before = {n: x.copy() for n, x in feeds.items()}
        outputs = cpu_eval_graph(graph, feeds)  # checks results against the inferred types
        for name, x in before.items():
            np.testing.assert_array_equal(x, feeds[name], err_msg=f"input {name} was changed")
        fixed = graph.specialize({n: k for n, k in sizes.items() if n in graph.symbols})
        fixed.verify()
        for other in (optimize_graph(graph), fixed):
            assert_same(outputs, cpu_eval_graph(other, feeds))


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_strided_operands_give_the_same(example: Example) -> None:
    graph = example.graph()
    feeds = example.feeds(example.sizes[0])
    strided = {n: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x for n, x in feeds.items()}
    assert_same(cpu_eval_graph(graph, feeds), cpu_eval_graph(graph, strided))


def assert_same(want: dict, got: dict) -> None:
    assert list(want) == list(got)
    for name, x in want.items():
        if isinstance(x, np.ndarray):
            assert x.dtype == got[name].dtype
            np.testing.assert_array_equal(x, got[name], err_msg=name)
        else:
            assert repr(x) == repr(got[name])


def test_operations_are_frozen_and_say_their_attributes() -> None:
    for op in OPERATIONS:
        assert op.__dataclass_params__.frozen, op  # type: ignore[attr-defined]
        assert inspect.getdoc(op)


def test_equal_operations_are_merged_and_random_ones_are_not() -> None:
    g = Graph()
    x = g.input("x", "float32", [2])
    assert g.relu(x) is g.relu(x)
