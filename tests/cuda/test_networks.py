"""How many launches whole networks need, and that these give what the reference does."""

from __future__ import annotations

import numpy as np
import pytest

from kn_cuda import CudaExecutor
from kn_graph import DType, Graph, Value, cpu_eval_graph
from kn_graph.ops.conv import Conv
from kn_graph.ops.pool import Pool
from tests.cuda.run import SEEDS, host_backend, needs_compiler

pytestmark = needs_compiler


def resnet18(dtype: str, width: int = 8) -> Graph:
    """Return the network with fewer channels; its norms are in the weights, as exports have it."""
    g = Graph("resnet18")
    rng = np.random.default_rng(0)
    numpy = DType.parse(dtype).numpy

    def weights(*shape: int) -> Value:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return g.constant((rng.standard_normal(shape) * scale).astype(numpy))

    def conv(x: Value, channels: int, kernel: int, stride: int) -> Value:
        pads = ((kernel // 2,) * 2,) * 2
        w = weights(channels, int(str(x.shape[1])), kernel, kernel)
        y = g.push(Conv((stride, stride), (1, 1), pads), x, w)
        return y + g.constant(rng.standard_normal((channels, 1, 1)).astype(numpy) / 10)

    x = g.relu(conv(g.input("x", dtype, ("batch", 3, 64, 64)), width, 7, 2))
    x = g.push(Pool("max", (3, 3), (2, 2), (1, 1), ((1, 1), (1, 1))), x)
    for stage in range(4):
        channels = width << stage
        for block in range(2):
            stride = 2 if stage and not block else 1
            inner = g.relu(conv(x, channels, 3, stride))
            side = conv(x, channels, 1, stride) if stride == 2 else x
            x = g.relu(conv(inner, channels, 3, 1) + side)
    x = g.matmul(g.reduce("mean", x, (2, 3)), weights(8 * width, 10))
    g.output("y", x + g.constant(np.ones(10, numpy)))
    return g


LAUNCHES = {
    # the image is turned, 20 convolutions, a pool, a mean, and a product with its bias
    "float16": 24,
    # strictly, the eight sums of two branches are launches of their own
    "float32": 24 + 8,
}


@pytest.mark.parametrize("dtype", LAUNCHES)
def test_resnet18(dtype: str) -> None:
    g = resnet18(dtype)
    x = np.random.default_rng(1).standard_normal((2, 3, 64, 64)).astype(DType.parse(dtype).numpy)
    want = cpu_eval_graph(g, {"x": x})["y"].astype(np.float64)
    found = []
    for seed in SEEDS:
        run = CudaExecutor(g, host_backend(seed))
        found.append(run.eval({"x": x})["y"])
        assert run.proof.total == LAUNCHES[dtype]
        assert run.proof.host_steps == {}
    assert found[0].tobytes() == found[1].tobytes()
    digits = 2.0**-9 if dtype == "float16" else 2.0**-20
    assert np.abs(found[0] - want).max() <= 4 * digits * np.abs(want).max()
