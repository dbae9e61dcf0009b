"""`kn compare`: whether devices, and other runtimes, give what the reference gives."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kn_graph.errors import UsageError
from kn_runtime.cli import feeds
from kn_runtime.cli.arguments import add_dims, add_model, dims_of
from kn_runtime.cli.common import INDENT, emit_json, grid, show
from kn_runtime.cli.table import Column, Table

if TYPE_CHECKING:
    from kn_graph.compare import Band, CompareReport, Divergence, Verdict
    from kn_graph.graph import Graph
    from kn_runtime.device import Device

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn compare model.onnx --input random
  kn compare model.onnx --input x=x.npy --devices cpu,cuda --bisect
  kn compare model.onnx --input random --against onnxruntime --json

Expected is what the NumPy reference computes from the model as it is. An element may be off by what
rounding in the model's precision explains: estimated from the difference between the reference in
that precision and in float64. NaN, infinities, integers and bools have to be the same.
"""

AGAINST = ("onnxruntime", "onnx.reference")
"""The runtimes of `kn_runtime.oracle`, which is imported when one is asked."""

COLUMNS = (
    Column("output", least=12),
    Column("type", least=12, rank=1),
    Column(""),
    Column("error/band", right=True),
    Column("outside", right=True),
    Column("worst at", rank=2),
    Column("got, expected", rank=3),
)


@dataclass(frozen=True)
class _Subject:
    """Who was compared, and what came out."""

    name: str
    optimized: bool
    seconds: float
    report: CompareReport
    divergence: Divergence | None = None
    looked: bool = False

    @property
    def title(self) -> str:
        return f"{self.name}, optimized" if self.optimized else self.name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    feeds.add_arguments(parser)
    parser.add_argument(
        "--devices",
        default="reference,cpu",
        metavar="NAME,NAME",
        help="who is compared: reference, cpu, cuda or cuda:N (default: reference,cpu)",
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        choices=AGAINST,
        help="also compare another runtime, which runs the file as it is",
    )
    parser.add_argument(
        "--optimize",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let devices run the optimized graph, the reference too (default: yes)",
    )
    parser.add_argument(
        "--bisect",
        action="store_true",
        help="where a device disagrees, find the first node that it computes differently",
    )
    add_dims(parser)


def execute(args: argparse.Namespace) -> int:
    """Load, run everywhere, compare, print."""
    from kn_graph.compare import model_band
    from kn_graph.onnx import load_graph
    from kn_runtime.device import Device

    devices = [Device.parse(name.strip()) for name in args.devices.split(",") if name.strip()]
    if not devices and not args.against:
        raise UsageError("--devices names none, so there is nothing to compare")
    graph = load_graph(args.model, dims=dims_of(args)).seal()
    given = feeds.read_feeds(graph, args)
    start = time.perf_counter()
    band = model_band(graph, given.values, seed=args.seed)
    seconds = time.perf_counter() - start
    subjects = [
        *_on_devices(devices, graph, given.values, band, args),
        *_elsewhere(args, given.values, band),
    ]
    ok = all(s.report.ok for s in subjects)
    if args.json:
        emit_json(_as_dict(args, given, subjects, seconds, ok))
    else:
        _print(given, subjects, args.verbose)
    return 0 if ok else 1


def _on_devices(
    devices: list[Device],
    graph: Graph,
    inputs: Mapping[str, Any],
    band: Band,
    args: argparse.Namespace,
) -> Iterator[_Subject]:
    from kn_graph.compare import compare_outputs
    from kn_graph.optimizer import optimize_graph

    runs = optimize_graph(graph) if args.optimize else graph
    for device in devices:
        with device.prepare(runs, optimize=False) as prepared:
            start = time.perf_counter()
            outputs = prepared.eval(inputs, seed=args.seed)
            seconds = time.perf_counter() - start
        report = compare_outputs(outputs, band)
        looked = args.bisect and not report.ok
        found = _first_difference(device, runs, inputs, args.seed) if looked else None
        yield _Subject(str(device), args.optimize, seconds, report, found, looked)


def _first_difference(
    device: Device, graph: Graph, inputs: Mapping[str, Any], seed: int
) -> Divergence | None:
    from kn_graph.compare import bisect

    def run(alone: Graph, operands: dict[str, Any]) -> Mapping[str, Any]:
        with device.prepare(alone, optimize=False) as prepared:
            return prepared.eval(operands, seed=seed)

    return bisect(graph, inputs, run, seed=seed)


def _elsewhere(
    args: argparse.Namespace, inputs: Mapping[str, Any], band: Band
) -> Iterator[_Subject]:
    from kn_graph.compare import compare_outputs
    from kn_runtime.oracle import run_oracle

    for name in args.against:
        start = time.perf_counter()
        outputs = run_oracle(name, args.model, inputs)
        seconds = time.perf_counter() - start
        yield _Subject(name, False, seconds, compare_outputs(outputs, band))


# ---- results --------------------------------------------------------------------------------


def _as_dict(
    args: argparse.Namespace,
    given: feeds.Feeds,
    subjects: list[_Subject],
    seconds: float,
    ok: bool,
) -> dict[str, Any]:
    return {
        "model": args.model,
        "ok": ok,
        "random": given.random,
        "assumed": given.assumed,
        "reference_ms": round(seconds * 1e3, 3),
        "subjects": [_subject_dict(s) for s in subjects],
    }


def _subject_dict(subject: _Subject) -> dict[str, Any]:
    found = subject.divergence
    facts: dict[str, Any] = {
        "name": subject.name,
        "optimized": subject.optimized,
        "ok": subject.report.ok,
        "run_ms": round(subject.seconds * 1e3, 3),
        "outputs": {v.name: v.as_dict() for v in subject.report.verdicts},
    }
    if subject.looked:
        facts["first_difference"] = found and {
            "node": found.node,
            "index": found.index,
            "op": found.op,
            "inputs": {v.name: str(v.type) for v in found.graph.inputs},
            "error": found.error,
            "results": {v.name: v.as_dict() for v in found.report.verdicts},
        }
    return facts


def _print(given: feeds.Feeds, subjects: list[_Subject], verbose: int) -> None:
    from rich.text import Text

    for subject in subjects:
        word, style = ("agrees", "bold green") if subject.report.ok else ("differs", "bold red")
        show(Text.assemble((subject.title, "bold"), ": ", (word, style)))
        rows = [_row(v) for v in subject.report.verdicts]
        show(Table(COLUMNS, rows), indent=INDENT)
        for verdict in subject.report.verdicts if verbose else subject.report.failed:
            show(Text(verdict.describe(), "dim"), indent=INDENT)
        if subject.divergence is not None:
            show(Text(subject.divergence.describe(), "yellow"), indent=INDENT)
        elif subject.looked:
            show("no single node differs: it takes several together", indent=INDENT)
        show("")
    rows = [("assumed", ", ".join(f"{n} = {k}" for n, k in given.assumed.items()))]
    rows += [("random", ", ".join(given.random))]
    show(grid((k, v) for k, v in rows if v))


def _row(v: Verdict) -> tuple[str, ...]:
    """Return the cells of one output; see `COLUMNS`."""
    head = (v.name, v.type, "ok" if v.ok else v.why)
    outside = f"{v.outside:,} of {v.elements:,}" if v.outside else "0"
    if v.worst is None:
        return (*head, "0", outside, "", "")
    from kn_graph.compare.verdict import element_text

    w = v.worst
    ratio = f"{w.error / w.tolerance:.2g}" if w.tolerance and w.error == w.error else ""
    place = f"[{', '.join(map(str, w.index))}]"
    values = f"{element_text(w.actual)}, {element_text(w.expected)}"
    return (*head, ratio, outside, place, values)
