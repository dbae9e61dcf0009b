"""What operators do in each version, shown by models of the backend suite under other versions.

Expected is what onnxruntime gives; what it cannot run has the suite's own expectation, since the
model is the same. `opset_failures.txt` has the cases that differ, with reasons.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from kn_graph import cpu_eval_graph, load_graph_from_onnx_bytes
from tests.onnx.opset_pairs import Restamped, all_pairs, restamped
from tests.onnx.reasons import listed

DIFFERENT = listed(Path(__file__).with_name("opset_failures.txt"))
OPERATORS = sorted({(p.domain, p.operator) for p in all_pairs()})

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def models() -> dict[tuple[str, str], list[Restamped]]:
    """The models by operator."""
    found = defaultdict(list)
    for made in restamped():
        found[made.pair.domain, made.pair.operator].append(made)
    return found


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: ":".join(filter(None, o)))
def test_every_version_does_what_onnxruntime_does(
    models: dict[tuple[str, str], list[Restamped]], operator: tuple[str, str]
) -> None:
    wrong = {m.name: reason for m in models.get(operator, ()) if (reason := difference(m))}
    expected = {m.name for m in models.get(operator, ())} & DIFFERENT.keys()
    assert wrong.keys() == expected, wrong


def test_the_list_names_models_that_exist(
    models: dict[tuple[str, str], list[Restamped]],
) -> None:
    assert DIFFERENT.keys() <= {m.name for group in models.values() for m in group}
    assert all(DIFFERENT.values())


def difference(made: Restamped) -> str:
    """Return how results differ from what is expected; '' where they do not."""
    _, ((given, expected), *_) = made.case.load()
    feeds = made.case.feeds(made.model, given)
    data = made.model.SerializeToString()
    try:
        graph = load_graph_from_onnx_bytes(data)
        got = list(cpu_eval_graph(graph, feeds).values())
        made.case.check(expected if made.same else by_onnxruntime(data, feeds, expected), got)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def by_onnxruntime(data: bytes, feeds: dict[str, Any], otherwise: list[Any]) -> list[Any]:
    """Return onnxruntime's results, or `otherwise` where it has none."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    given = {n: x for n, x in feeds.items() if x is not None}
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        results = session.run(None, given)
    except Exception:
        return otherwise
    pairs = zip(results, otherwise, strict=True)
    # it has no NumPy type for some elements, and returns their bits
    return [x.view(y.dtype) if _bits_only(x, y) else x for x, y in pairs]


def _bits_only(x: Any, y: Any) -> bool:
    return (
        isinstance(x, np.ndarray)
        and isinstance(y, np.ndarray)
        and x.dtype.kind == "u"
        and x.dtype != y.dtype
        and x.dtype.itemsize == y.dtype.itemsize
    )
