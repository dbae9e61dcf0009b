"""Numbers that come from sizes alone, on the host in place of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kn_graph import DType, Graph
from tests.cuda.run import check, launched, needs_compiler

pytestmark = needs_compiler


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8"])
def test_counting_wraps(dtype: str) -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n",))
        return g.iota(x.shape[0], DType.parse(dtype))

    run = check(build, {"n": 300}, {"n": 0}, {"n": 1})
    assert launched(run, "fill_iota") == 2


def test_sizes_as_tensors() -> None:
    def build(g: Graph) -> Any:
        x = g.input("x", "float32", ("n", 3))
        n = x.shape[0]
        shape = g.size_tensor(np.array([[n, n * 3], [n - n, n + 7]], object))
        return shape, g.permute(shape, (1, 0)) + 1

    run = check(build, {"n": 5}, {"n": 0})
    assert launched(run, "fill_sizes") == 4  # the sum of sizes is sizes as well
