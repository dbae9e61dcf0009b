"""Whether this machine's GPU computes what the reference does: a line for each item.

    python -m kn_cuda.selftest [--host]

For a person with a GPU, and a few minutes. With --host the host stands in for it, which tests this
test. Exits with 1 where an item fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kn_cuda.backend import Backend
from kn_cuda.device import cuda_device
from kn_cuda.executor import CudaExecutor
from kn_cuda.gate import shortfall
from kn_cuda.host import HostBackend
from kn_graph.errors import InternalError, KnError
from kn_graph.graph import Graph
from kn_graph.ops.attention import Attention
from kn_graph.ops.conv import Conv
from kn_graph.ops.norm import Norm
from kn_graph.ops.pool import Pool
from kn_graph.reference import cpu_eval_graph
from kn_graph.value import Value

__all__ = ["ITEMS", "Item", "checked", "main"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Item:
    """Something that is computed and compared.

    Attributes:
        build: makes the results from the graph and its inputs.
        shapes: of the inputs.
        dtype: of the inputs.
        close: how far results may be off, in parts of the largest.
    """

    build: Callable[..., Value]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    close: float = 1e-5

    def graph(self) -> Graph:
        """Return the graph."""
        g = Graph("selftest")
        made = [g.input(f"x{i}", self.dtype, shape) for i, shape in enumerate(self.shapes)]
        g.output("y", self.build(g, *made))
        return g


ITEMS: Mapping[str, Item] = {
    "elementwise": Item(lambda g, x, y: g.gelu(x * y) + 1.0, ((1000, 33), (1000, 33))),
    "reductions": Item(lambda g, x: g.reduce("sum", x * x, (1,)), ((70, 5000),)),
    "norms": Item(lambda g, x: g.push(Norm((1,), 1e-5), x), ((300, 768),)),
    "softmax": Item(lambda g, x: g.softmax(x, 1), ((300, 1000),)),
    "products of few rows": Item(lambda g, x, y: g.relu(x @ y), ((3, 512), (512, 700))),
    "products, tiled": Item(lambda g, x, y: g.relu(x @ y), ((200, 60), (60, 300))),
    "products, by cuBLAS": Item(lambda g, x, y: x @ y, ((256, 900), (900, 300))),
    "products in float16": Item(
        lambda g, x, y: x @ y, ((256, 900), (900, 304)), dtype="float16", close=1e-2
    ),
    "convolutions": Item(
        lambda g, x, w: g.relu(g.push(Conv((1, 1), (1, 1), ((1, 1), (1, 1))), x, w)),
        ((2, 16, 30, 30), (32, 16, 3, 3)),
    ),
    "pools": Item(
        lambda g, x: g.push(Pool("max", (3, 3), (2, 2), (1, 1), ((1, 1), (1, 1))), x),
        ((2, 16, 30, 30),),
    ),
    "attention": Item(
        lambda g, q, k, v: g.push(Attention(), q, k, v),
        ((1, 2, 9, 32), (1, 2, 70, 32), (1, 2, 70, 32)),
    ),
    "joins": Item(lambda g, x, y: g.concat([x, y * 2.0], 1), ((50, 30), (50, 40))),
}
"""By name."""


def checked(item: Item, backend: Backend) -> str:
    """Compare an item with the reference, twice; return what was launched.

    Raises:
        InternalError: results differ, are not the same twice, or did not come from the device.
    """
    g = item.graph()
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in g.inputs}
    run = CudaExecutor(g, backend)
    first, second = (run.eval(feeds)["y"] for _ in range(2))
    missing = shortfall(g, {}, run.proof)
    if missing or not run.proof.total:
        raise InternalError(f"not computed by the device: {'; '.join(missing) or 'no launches'}")
    if first.tobytes() != second.tobytes():
        raise InternalError("a second run gave other bits")
    want = cpu_eval_graph(g, feeds)["y"].astype(np.float64)
    error = float(np.abs(first.astype(np.float64) - want).max() / np.abs(want).max())
    if not error <= item.close:
        raise InternalError(
            f"off by {error:.1e} of the largest result; expected at most {item.close:g}"
        )
    kernels = ", ".join(f"{n} {name}" for name, n in sorted(run.proof.kernels.items()))
    return f"off by {error:.0e}; two runs: {kernels}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all items; return 1 where one fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--host", action="store_true", help="with the host in place of a GPU")
    args = parser.parse_args(arguments)
    try:
        backend: Backend = HostBackend() if args.host else cuda_device()
    except KnError as error:
        _say("no", "device", str(error))
        return 1
    _say("ok", "device", f"{backend.name}, {backend.arch}")
    failed = 0
    for name, item in ITEMS.items():
        try:
            _say("ok", name, checked(item, backend))
        except Exception as error:  # whatever a driver raises is a verdict, too
            failed += 1
            _say("no", name, f"{type(error).__name__}: {error}")
    return int(failed > 0)


def _say(verdict: str, name: str, text: str) -> None:
    sys.stdout.write(f"{verdict}  {name:<22} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
