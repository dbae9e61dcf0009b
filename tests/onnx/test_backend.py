"""The ONNX backend suite on the reference executor.

What does not pass yet is listed, with the reason, in `backend_failures.txt`; a listed case that
passes fails the run, so the list only ever shrinks on purpose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kn_graph import cpu_eval_graph, load_graph_from_onnx_bytes, optimize_graph
from tests.onnx.backend_suite import Case, all_cases
from tests.onnx.reasons import listed

LIST = Path(__file__).with_name("backend_failures.txt")


CASES = list(all_cases())
FAILURES = listed(LIST)


def run(case: Case, *, optimize: bool) -> None:
    """Load, run and compare one case."""
    model, sets = case.load()
    graph = load_graph_from_onnx_bytes(model.SerializeToString())
    if optimize:
        graph = optimize_graph(graph)
    for given, expected in sets:
        outputs = cpu_eval_graph(graph, case.feeds(model, given))
        case.check(expected, [outputs[v.name] for v in model.graph.output])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_backend_case_gives_the_expected_outputs(case: Case) -> None:
    if case.name not in FAILURES:
        run(case, optimize=False)
        return
    try:
        run(case, optimize=False)
    except Exception:
        return
    pytest.fail(f"{case.name} passes now: take it off {LIST.name}")


def test_the_list_names_cases_that_exist_and_gives_a_reason() -> None:
    names = {c.name for c in CASES}
    assert not FAILURES.keys() - names
    assert all(FAILURES.values())
