"""How many kernels models launch on a GPU that is described, and what that should take.

    python -m benchmarks.launch_counts [REGEX] [--arch sm_90] [--no-onnxruntime]

No GPU is there: launches follow from the plan and its sizes, times are predicted. The bound is what
memory or arithmetic take at least, step after step; the prediction lets a step take at least as
long as its launches do one after another. Beside them are the nodes that onnxruntime leaves of a
model (see `benchmarks.op_counts`), each of which is one launch or more.

Models are those of $KN_EXPORTS_DIR (default ~/.cache/kn-exports); sizes are those of the recorded
inputs beside a file, where there are any. A row says what runs on the host, and is then no figure.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.op_counts import model_files, onnxruntime_nodes
from benchmarks.tables import markdown
from kn_cuda.inspection import Inspection, host_reasons, inspect_plan
from kn_cuda.target import CudaTarget
from kn_graph import Graph, KnError, load_graph_from_onnx_path, optimize_graph
from kn_plan.cost import step_cost
from kn_plan.device_spec import CUDA_SPECS
from kn_plan.numbers import all_numbers
from kn_plan.planner import plan_graph
from kn_runtime.cli.planned import at_sizes

__all__ = ["Row", "main", "measure"]

HEAD = (
    "model", "sizes", "launches", "by libraries", "host", "onnxruntime nodes", "MB moved",
    "bound ms", "predicted ms",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        name: what it is called.
        sizes: numbers of its symbols, as text.
        launches: kernels, libraries' included.
        library_calls: those of libraries.
        host_steps: steps without a kernel.
        theirs: nodes that onnxruntime leaves; None where it was not asked.
        moved: bytes.
        bound: seconds.
        predicted: seconds.
    """

    name: str
    sizes: str
    launches: int
    library_calls: int
    host_steps: int
    theirs: int | None
    moved: int
    bound: float
    predicted: float

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as texts."""
        return (
            self.name, self.sizes, str(self.launches), str(self.library_calls),
            str(self.host_steps), "-" if self.theirs is None else str(self.theirs),
            f"{self.moved / 1e6:.1f}", f"{self.bound * 1e3:.3f}", f"{self.predicted * 1e3:.3f}",
        )  # fmt: skip


def measure(name: str, path: Path, arch: str, *, onnxruntime: bool = True) -> Row:
    """Plan a model for a GPU and count."""
    sized = at_sizes(*_with_sizes(optimize_graph(load_graph_from_onnx_path(path)), path))
    env, _ = all_numbers(sized.graph, sized.dims)
    plan = plan_graph(sized.graph, CudaTarget(arch))
    found, spec = inspect_plan(plan, env, arch), CUDA_SPECS[arch]
    moved, bound, predicted = 0, 0.0, 0.0
    launches = _launches_by_step(found)
    for step in plan.steps:
        cost = step_cost(plan, step).at(env)
        amounts = (int(cost.products), int(cost.scalars), int(cost.moved))
        products, scalars, nbytes = amounts
        compute = products / spec.product_flops(cost.dtype) + scalars / spec.flops
        least = max(compute, nbytes / spec.bandwidth)
        moved += nbytes
        bound += least
        predicted += max(least, spec.launch * launches.get(id(step), 0))
    nodes = onnxruntime_nodes(path) if onnxruntime else None
    return Row(
        name, " ".join(f"{s.name}={n}" for s, n in env.items()), found.launches,
        found.library_calls, len(host_reasons(plan, arch)), nodes and nodes[0], moved, bound,
        predicted,
    )  # fmt: skip


def _launches_by_step(found: Inspection) -> Mapping[int, int]:
    return {id(step): len(calls) for step, calls in found.steps}


def _with_sizes(graph: Graph, path: Path) -> tuple[Graph, dict[str, int]]:
    """Return a graph with the sizes of the inputs recorded beside its file."""
    recorded = path.with_suffix(".npz")
    if not recorded.exists():
        return graph, {}
    with np.load(recorded) as content:
        shapes = {k.removeprefix("in:"): content[k].shape for k in content.files}
    found = {}
    for v in graph.inputs:
        for size, n in zip(v.shape, shapes.get(v.name, ()), strict=False):
            if not isinstance(size, int) and str(size) in {s.name for s in graph.input_symbols()}:
                found[str(size)] = int(n)
    return graph, found


def main(arguments: list[str] | None = None) -> int:
    """Count and print the table; return 1 where a model does not load."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="", metavar="REGEX", help="which models")
    parser.add_argument("--arch", default="sm_90", choices=sorted(CUDA_SPECS))
    parser.add_argument("--no-onnxruntime", action="store_true", help="leave its column empty")
    args = parser.parse_args(arguments)
    folder = Path(os.environ.get("KN_EXPORTS_DIR", Path.home() / ".cache" / "kn-exports"))
    rows, failed = [], False
    for name, path in model_files([folder]):
        if not re.search(args.pattern, name):
            continue
        try:
            rows.append(measure(name, path, args.arch, onnxruntime=not args.no_onnxruntime))
        except KnError as error:
            failed = True
            print(f"{name}: {error}", file=sys.stderr)
    print(markdown(HEAD, (r.cells for r in rows), (0, 1)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
