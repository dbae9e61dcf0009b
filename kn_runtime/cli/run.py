"""`kn run`: run a model on given inputs."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kn_graph.errors import UsageError
from kn_runtime.cli import feeds
from kn_runtime.cli.arguments import add_device, add_dims, add_model, dims_of
from kn_runtime.cli.common import INDENT, emit_json, grid, show
from kn_runtime.cli.results import check_labels, first_text, save_outputs, summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn run digits.onnx --input image=digit.png --labels digits.txt
  kn run model.onnx --input x=x.npy --output results
  kn run model.onnx --input image=pictures/ --labels labels.txt --output results
  kn run model.onnx --input random --dim batch=4 --device reference --json

A folder instead of a file runs the model for each file in it (of several inputs: for the files of
the same name) and prints a line for each; files that fail are named, and the rest goes on.
"""

MOST_PLACES = 10
"""Nodes at which NaN begins that are printed."""

BAR = 20
"""Characters of the bar of a probability of 1."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    feeds.add_arguments(parser)
    parser.add_argument(
        "--labels", metavar="FILE", help="names of classes, one a line: print the five best"
    )
    parser.add_argument(
        "--output", metavar="DIR", help="write DIR/NAME.npy for each output, and DIR/outputs.json"
    )
    parser.add_argument(
        "--find-nan", action="store_true",
        help="run the reference too, and name the nodes at which NaN and infinities begin",
    )  # fmt: skip
    add_device(parser)
    add_dims(parser)


def execute(args: argparse.Namespace) -> int:
    """Load, run, print."""
    from kn_runtime.cli import folders
    from kn_runtime.device import Device
    from kn_runtime.load import load

    labels = None if args.labels is None else _read_labels(Path(args.labels))
    device = Device.parse(args.device)
    calls = folders.calls_of(args.input)
    start = time.perf_counter()
    prepared = load(args.model, device, dims=dims_of(args))
    loaded = time.perf_counter()
    if calls is not None:
        if args.find_nan:
            raise UsageError("--find-nan takes one set of inputs, not a folder")
        return folders.execute(args, prepared, calls, labels)
    given = feeds.read_feeds(prepared.graph, args)
    ready = time.perf_counter()
    outputs = prepared.eval(given.values, seed=args.seed)
    done = time.perf_counter()
    report = {
        "model": args.model,
        "device": str(device),
        "reason": device.reason,
        "random": given.random,
        "assumed": given.assumed,
        "load_ms": round((loaded - start) * 1e3, 3),
        "run_ms": round((done - ready) * 1e3, 3),
        "outputs": {n: summary(x, labels) for n, x in outputs.items()},
    }
    if args.find_nan:
        from kn_graph.compare import find_not_finite

        found = find_not_finite(prepared.graph, given.values, seed=args.seed)
        report["not_finite"] = [asdict(f) | {"text": f.describe()} for f in found]
    if labels is not None:
        check_labels(report["outputs"], args.labels, labels)
    if args.output is not None:
        save_outputs(outputs, Path(args.output))
    if args.json:
        emit_json(report)
    else:
        _print(report, outputs)
    return 0


def _read_labels(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").rstrip("\n").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"--labels {path} cannot be read: {reason}") from None


# ---- text -----------------------------------------------------------------------------------


def _print(report: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    for name, facts in report["outputs"].items():
        if "top" in facts:
            _print_labels(name, facts)
        else:
            _print_values(name, facts, first_text(outputs[name]))
        show("")
    rows = {
        "random": feeds.few(report["random"]),
        "assumed": ", ".join(f"{n} = {k}" for n, k in report["assumed"].items()),
        "device": f"{report['device']}: {report['reason']}",
        "time": f"{report['load_ms']:.1f} ms to load, {report['run_ms']:.1f} ms to run",
    }
    show(grid((k, v) for k, v in rows.items() if v))
    _print_not_finite(report)


def _print_not_finite(report: Mapping[str, Any]) -> None:
    """Print where NaN and infinities begin, or how to find out."""
    found = report.get("not_finite")
    outputs = [n for n, facts in report["outputs"].items() if facts.get("nan") or facts.get("inf")]
    if found is None and outputs:
        show(f"\n{', '.join(outputs)}: not finite; --find-nan names the nodes where that begins")
    elif found is not None:
        show("\nNaN and infinities begin at" if found else "\nall results of nodes are finite")
        for place in found[:MOST_PLACES]:
            show(place["text"], indent=INDENT)
        if len(found) > MOST_PLACES:
            show(f"... and {len(found) - MOST_PLACES:,} more", indent=INDENT)


def _print_labels(name: str, facts: Mapping[str, Any]) -> None:
    """Print the best labels of each row of scores."""
    from rich.text import Text

    several = len(facts["top"]) > 1
    for i, best in enumerate(facts["top"]):
        row = f"{name}[{i}]" if several else name
        show(Text.assemble((row, "bold"), ": ", (best[0]["label"], "bold green")))
        rows = [_label_row(entry, facts["probabilities"]) for entry in best]
        show(grid(rows, ("", "#", "")), indent=INDENT)
    more = facts["rows"] - len(facts["top"])
    if more:
        show(f"... and {more:,} more rows")


def _label_row(entry: Mapping[str, Any], is_probability: bool) -> Sequence[str]:
    if not is_probability:
        return entry["label"], f"{entry['score']:.4g}", ""
    return entry["label"], f"{entry['score']:.2%}", "█" * round(BAR * entry["score"])


def _print_values(name: str, facts: Mapping[str, Any], first: str) -> None:
    """Print type, first elements and statistics of an output."""
    from rich.text import Text

    show(Text.assemble((name, "bold"), "  ", facts["type"]))
    if first:
        show(Text(first), indent=INDENT)
    statistics = [f"{k} {facts[k]:.5g}" for k in ("min", "mean", "max") if k in facts]
    statistics += [f"{facts[k]:,} {k}" for k in ("nan", "inf") if facts.get(k)]
    if statistics and math.prod(facts["shape"]) > len(facts["first"]):
        show(Text(", ".join(statistics), "dim"), indent=INDENT)
