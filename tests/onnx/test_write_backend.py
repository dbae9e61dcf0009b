"""The ONNX backend suite, written and loaded again: the expected outputs come out of what was.

What does not is listed, with the reason, in `write_failures.txt`; a listed case that passes fails
the run.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from kn_graph import cpu_eval_graph, load_graph_from_onnx_bytes
from kn_graph.errors import UnsupportedModelError
from tests.onnx.backend_suite import Case, all_cases
from tests.onnx.reasons import listed
from tests.onnx.test_backend import FAILURES
from tests.onnx.writing import written

LIST = Path(__file__).with_name("write_failures.txt")
CASES = [c for c in all_cases() if c.name not in FAILURES]
REFUSED = listed(LIST)
GROWING = listed(LIST.with_name("write_growing.txt"))


def opset_of(model: onnx.ModelProto) -> int:
    return max(21, *(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 21)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_backend_case_gives_the_expected_outputs_when_it_was_written(case: Case) -> None:
    model, sets = case.load()
    opset = opset_of(model)
    graph = load_graph_from_onnx_bytes(model.SerializeToString())
    if case.name in REFUSED:
        with pytest.raises(UnsupportedModelError):
            written(graph, opset)
        return
    once = written(graph, opset)
    again = load_graph_from_onnx_bytes(once)
    for given, expected in sets:
        outputs = cpu_eval_graph(again, case.feeds(model, given))
        case.check(expected, [outputs[v.name] for v in model.graph.output])
    twice = written(again, opset)
    stable = twice == once or written(load_graph_from_onnx_bytes(twice), opset) == twice
    assert stable is (case.name not in GROWING)


def test_the_lists_name_cases_that_exist_and_give_a_reason() -> None:
    for entries in (REFUSED, GROWING):
        assert not entries.keys() - {c.name for c in CASES}
        assert all(entries.values())
