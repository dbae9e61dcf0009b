"""`kn optimize`: what the optimizer makes of a model."""

from __future__ import annotations

import argparse
from collections import Counter

from kn_runtime.cli.common import add_dims, add_model, dims_of, emit_json, grid, show

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn optimize model.onnx
  kn optimize model.onnx --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    parser.add_argument("--report", action="store_true", help="also say what was refused, and why")
    add_dims(parser)


def execute(args: argparse.Namespace) -> int:
    """Optimize, and print which rules fired and what is left."""
    from kn_graph.onnx import load_graph_from_onnx_path
    from kn_graph.optimizer import optimize_graph_report

    graph = load_graph_from_onnx_path(args.model, dims=dims_of(args))
    optimized, report = optimize_graph_report(graph)
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
    }
    if args.json:
        emit_json(facts)
        return 0
    show(f"{report.nodes_before} nodes before, {report.nodes_after} after")
    show(grid(report.fired.most_common(), ("rule", "#fired")))
    if args.report and refused:
        rows = [(r["rule"], r["count"], r["reason"], r["first"]) for r in refused]
        show(grid(rows, ("rule", "#refused", "why", "first at")))
    show(grid(counts.most_common(), ("operation", "#left")))
    return 0
