"""Operations that plans carry out as others, on native kernels and without a host step."""

from __future__ import annotations

import pytest

from kn_cpu.executor import CpuExecutor
from kn_graph import cpu_eval_graph
from kn_graph.ops.nms import NonMaxSuppression
from kn_graph.ops.nonzero import NonZero, Unique
from kn_graph.ops.signal import Dft
from tests.cpu.steps import KERNELS, agree, at_ties
from tests.ops.example import Example
from tests.ops.test_examples import name_of
from tests.plan.expansions import EXPANDED

pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")


def _is_of_host(e: Example) -> bool:
    return e.op in (Dft, NonZero, Unique) or ("float64" in e.note and e.op is NonMaxSuppression)


HOST = [e for e in EXPANDED if _is_of_host(e)]
"""Boxes of float64, transforms, which are exact there, and numbers of places, which are as fast."""


@pytest.mark.parametrize("example", [e for e in EXPANDED if e not in HOST], ids=name_of)
def test_expansions_have_native_kernels(example: Example) -> None:
    graph = example.graph()
    assert KERNELS is not None
    run = CpuExecutor(graph, KERNELS, 2)
    hosts = [(h.step.kind, h.reason) for h in run.skeleton().host_steps]
    assert [h for h in hosts if h[0] != "ReadSizes"] == []
    for sizes in example.sizes:
        feeds = example.feeds(sizes)
        got = run.eval(feeds)
        agree(at_ties(cpu_eval_graph(graph, feeds), got, 1), got)
