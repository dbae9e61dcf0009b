"""Pooling of regions of images, on native kernels."""

from __future__ import annotations

import numpy as np
import pytest

from kn_cpu.executor import CpuExecutor
from kn_graph import cpu_eval_graph
from kn_graph.errors import ExecutionError
from tests.cpu.steps import KERNELS, agree, at_ties
from tests.ops.regions import CASES, RegionCase

pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no native kernels")

NARROW = [c for c in CASES if c.dtype != "float64"]


def executor(case: RegionCase) -> CpuExecutor:
    assert KERNELS is not None
    run = CpuExecutor(case.graph(), KERNELS, 2)
    assert [(h.step.kind, h.reason) for h in run.skeleton().host_steps] == []
    return run


@pytest.mark.parametrize("case", NARROW, ids=str)
def test_regions_of_every_kind(case: RegionCase) -> None:
    run = executor(case)
    for count in (None, 1, 0):
        feeds = case.feeds(count)
        got = run.eval(feeds)
        agree(at_ties(cpu_eval_graph(run.graph, feeds), got, 1), got)


@pytest.mark.parametrize("image", [2, -1])
def test_a_region_of_no_image_is_an_error(image: int) -> None:
    run = executor(CASES[0])
    feeds = CASES[0].feeds()
    feeds["images"] = feeds["images"].copy()
    feeds["images"][3] = image
    with pytest.raises(ExecutionError, match=f"region 3 is of image {image}, and there are 2"):
        run.eval(feeds)


def test_a_region_that_is_not_finite_is_an_error() -> None:
    run = executor(CASES[0])
    feeds = CASES[0].feeds()
    feeds["rois"][4, 1] = np.nan
    with pytest.raises(ExecutionError, match="region 4 is not finite"):
        run.eval(feeds)
