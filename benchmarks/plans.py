"""What models become when they are planned for the CPU, and how long that takes.

    python -m benchmarks.plans [REGEX] [--markdown] [--models DIR ...]

`nodes` are those of the file that are neither Constant nor Identity, `groups` the steps of the
plan, both with those of control-flow bodies; the ratio of the two says how well nodes are grouped.
`host` are steps without a kernel. Times are medians in milliseconds: loading and optimizing,
planning, then binding to sizes of which the memory is laid out, and laying it out anew. Models are
those of `benchmarks.op_counts`, and one of 1,000 nodes (`benchmarks.startup`) called `blocks`.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.op_counts import model_files, onnx_nodes
from benchmarks.startup import block_model, seconds
from benchmarks.tables import markdown
from kn_cpu.bound import bind_stage
from kn_cpu.native import NativeLibrary, library
from kn_cpu.program import Skeleton
from kn_cpu.target import CpuTarget
from kn_graph import Graph, KnError, load_graph_from_onnx_path, optimize_graph
from kn_graph.dim import Symbol
from kn_graph.liveness import bodies_of, live_nodes
from kn_graph.variants import symbols_by_name
from kn_plan.options import PlanOptions
from kn_plan.planner import plan_graph
from kn_runtime.assume import assumed_sizes

__all__ = ["Row", "main", "measure"]

REPEATS = 5

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """One model; times in milliseconds.

    Attributes:
        name: what it is called.
        nodes: of the file, without Constant and Identity.
        groups: steps of the plan.
        host: those without a kernel.
        load: loading and optimizing.
        plan: planning.
        bind: to sizes within the capacity.
        anew: to sizes that the memory is laid out for; both None where sizes show only in a run.
    """

    name: str
    nodes: int
    groups: int
    host: int
    load: float
    plan: float
    bind: float | None
    anew: float | None


def timed(action: Callable[[], T]) -> tuple[T, float]:
    """Return what an action gives, and the median of its time in milliseconds."""
    found: list[T] = []
    times = [seconds(lambda: found.append(action())) for _ in range(REPEATS)]
    return found[-1], statistics.median(times) * 1e3


def with_bodies(graph: Graph) -> list[Graph]:
    """Return a graph and the bodies in it, at any depth."""
    found = [graph]
    for current in found:
        for node in live_nodes(current, current.outputs.values()):
            found += bodies_of(node)
    return found


def measure(name: str, path: Path, kernels: NativeLibrary) -> Row:
    """Load, plan and bind one model."""
    graph, load = timed(lambda: optimize_graph(load_graph_from_onnx_path(path)))
    plan, planning = timed(lambda: plan_graph(graph, CpuTarget()))
    inner = [plan_graph(g, CpuTarget()) for g in with_bodies(graph)[1:]]
    skeletons = [Skeleton(p, kernels, PlanOptions()) for p in (plan, *inner)]
    file = onnx.load(path, load_external_data=False)
    nodes = sum(n.op_type not in ("Constant", "Identity") for n in onnx_nodes(file.graph))
    env = symbols_by_name(graph, assumed_sizes(graph, {}))
    anew, bind = _binding(skeletons[0], env)
    host = sum(len(s.host_steps) for s in skeletons)
    groups = sum(len(p.steps) for p in (plan, *inner))
    return Row(name, nodes, groups, host, load, planning, bind, anew)


def _binding(skeleton: Skeleton, env: dict[Symbol, int]) -> tuple[float | None, float | None]:
    """Return the times of binding the first time and again."""
    if len(skeleton.stages) > 1:
        return None, None
    (stage,) = skeleton.stages
    first = seconds(lambda: bind_stage(skeleton, stage, env)) * 1e3
    return first, timed(lambda: bind_stage(skeleton, stage, dict(env)))[1]


# ---- table ----------------------------------------------------------------------------------

HEAD = ("model", "nodes", "groups", "ratio", "host", "load+optimize", "plan", "bind", "lay out")


def _cells(row: Row) -> list[str]:
    ratio = row.groups / row.nodes
    times = (row.load, row.plan, row.bind, row.anew)
    texts = ["-" if t is None else f"{t:.1f}" if t >= 1 else f"{t:.3f}" for t in times]
    return [row.name, str(row.nodes), str(row.groups), f"{ratio:.2f}", str(row.host), *texts]


def _table(rows: Iterable[Row]) -> Table:
    table = Table(HEAD[0])
    for title in HEAD[1:]:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def main(arguments: list[str] | None = None) -> int:
    """Measure the models and print the table; return 1 where one cannot be planned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="", metavar="REGEX", help="which models")
    parser.add_argument("--markdown", action="store_true", help="print a table for a document")
    parser.add_argument("--models", type=Path, nargs="+", metavar="DIR", help="folders of models")
    args = parser.parse_args(arguments)
    kernels = library()
    if kernels is None:
        parser.error("there are no native kernels")
    rows, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        blocks = Path(folder) / "blocks.onnx"
        onnx.save(block_model(1000), blocks)
        for name, path in [("blocks", blocks), *model_files(args.models)]:
            if not re.search(args.pattern, name):
                continue
            try:
                rows.append(measure(name, path, kernels))
            except KnError as error:
                failed = True
                print(f"{name}: {error}", file=sys.stderr)
    if args.markdown:
        print(markdown(HEAD, map(_cells, rows)))
    else:
        Console().print(_table(rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
