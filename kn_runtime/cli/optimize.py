"""`kn optimize`: what the optimizer makes of a model, as a report and as a file."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.errors import UsageError
from kn_runtime.cli.arguments import add_dims, add_model, dims_of
from kn_runtime.cli.common import INDENT, emit_json, grid, joined, show
from kn_runtime.cli.table import Column, Table

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.optimizer import OptimizerReport

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn optimize model.onnx
  kn optimize model.onnx --json
  kn optimize model.onnx -o small.onnx
  kn optimize model.onnx -o fixed.onnx --opset 23 --dim batch=1
"""


FIRED = (Column("rule", least=12), Column("fired", right=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    parser.add_argument("--report", action="store_true", help="also say what was refused, and why")
    parser.add_argument("-o", "--output", metavar="OUT.onnx", help="write the optimized model")
    parser.add_argument(
        "--opset", type=int, metavar="N", help="of the model written (default: 21, the least)"
    )
    add_dims(parser)


def execute(args: argparse.Namespace) -> int:
    """Optimize, write the result if asked, and print which rules fired and what is left."""
    from kn_graph.onnx import load_graph_from_onnx_path
    from kn_graph.optimizer import optimize_graph_report

    graph = load_graph_from_onnx_path(args.model, dims=dims_of(args))
    optimized, report = optimize_graph_report(graph)
    _write(optimized, args.output, args.opset)
    counts = Counter(n.op.title for n in optimized.nodes)
    refused = [
        {"rule": rule, "reason": why, "count": n, "first": report.refused_at[rule, why]}
        for (rule, why), n in report.refused.most_common()
    ]
    facts = {
        "model": args.model,
        "nodes_before": report.nodes_before,
        "nodes_after": report.nodes_after,
        "fired": dict(report.fired.most_common()),
        "refused": refused,
        "operations": dict(counts.most_common()),
        "written": args.output,
    }
    if args.json:
        emit_json(facts)
        return 0
    _print(report, refused if args.report else [], counts, args.output)
    return 0


def _print(
    report: OptimizerReport,
    refused: Sequence[Mapping[str, Any]],
    counts: Counter[str],
    written: str | None,
) -> None:
    """Print what fired, what was refused and what is left."""
    from rich.text import Text

    show(f"{report.nodes_before:,} nodes before, {report.nodes_after:,} after", "")
    show(Table(FIRED, report.fired.most_common()), "")
    if refused:
        rows = [(r["rule"], r["count"], f"{r['reason']} (first {r['first']})") for r in refused]
        show(grid(rows, ("rule", "#refused", "why")), "")
    show(Text("operations left", "bold"))
    show(joined(f"{count:,} {name}" for name, count in counts.most_common()), indent=INDENT)
    if written is not None:
        show("", grid([("written", written)]))


def _write(graph: Graph, path: str | None, opset: int | None) -> None:
    from kn_graph.onnx import save_graph_to_onnx_path

    if path is None:
        if opset is not None:
            raise UsageError("--opset is of the model that -o writes; give -o OUT.onnx")
        return
    if opset is None:
        save_graph_to_onnx_path(graph, path)
    else:
        save_graph_to_onnx_path(graph, path, opset)
