"""Pooling of regions of images, on the host in place of a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from kn_cuda import CudaExecutor
from kn_graph.errors import ExecutionError
from tests.cuda.run import assert_clean, check_graph, host_backend, launched, needs_compiler
from tests.ops.regions import CASES, RegionCase

pytestmark = needs_compiler


@pytest.mark.parametrize("case", CASES, ids=str)
def test_regions_of_every_kind(case: RegionCase) -> None:
    run = check_graph(case.graph(), [case.feeds(n) for n in (None, 1, 0)], ulps=1)
    assert launched(run, "roi_align") == 2 * 8
    assert launched(run, "roi_max_pool") == 2
    assert run.proof.host_steps == {}
    assert_clean([k.widened for k in run.loaded().skeleton.kernels])


@pytest.mark.parametrize("image", [2, -1])
def test_a_region_of_no_image_is_an_error(image: int) -> None:
    feeds = CASES[0].feeds()
    feeds["images"] = feeds["images"].copy()
    feeds["images"][3] = image
    run = CudaExecutor(CASES[0].graph(), host_backend())
    with pytest.raises(ExecutionError, match=f"region 3 is of image {image}, and there are 2"):
        run.eval(feeds)


def test_a_region_that_is_not_finite_is_an_error() -> None:
    feeds = CASES[0].feeds()
    feeds["rois"][4, 1] = np.nan
    run = CudaExecutor(CASES[0].graph(), host_backend())
    with pytest.raises(ExecutionError, match="region 4 is not finite"):
        run.eval(feeds)
