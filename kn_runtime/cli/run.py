"""`kn run`: run a model on given inputs."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kn_graph.errors import UsageError
from kn_runtime.cli import feeds
from kn_runtime.cli.common import add_device, add_dims, console, dims_of, emit_json, table

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn run digits.onnx --input image=digit.png --labels digits.txt
  kn run model.onnx --input x=x.npy --output results
  kn run model.onnx --input random --dim batch=4 --device reference --json
"""

SHOWN = 8
"""Numbers of an output that are printed."""

TOP = 5
"""Labels that are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("model", help="an ONNX file")
    feeds.add_arguments(parser)
    parser.add_argument("--labels", metavar="FILE", help="names of classes, one a line")
    parser.add_argument("--output", metavar="DIR", help="write outputs as DIR/NAME.npy")
    add_device(parser)
    add_dims(parser)


def execute(args: argparse.Namespace) -> int:
    """Load, run, print."""
    from kn_graph.onnx import load_graph_from_onnx_path
    from kn_runtime.device import Device

    labels = None if args.labels is None else _labels(Path(args.labels))
    device = Device.parse(args.device)
    dims = dims_of(args)
    start = time.perf_counter()
    graph = load_graph_from_onnx_path(args.model, dims=dims)
    prepared = device.prepare(graph)
    given = feeds.read_feeds(graph, args, dims)
    loaded = time.perf_counter()
    outputs = prepared.eval(given.values, seed=args.seed)
    done = time.perf_counter()
    report = {
        "model": args.model,
        "device": str(device),
        "reason": device.reason,
        "assumed": given.assumed,
        "load_ms": (loaded - start) * 1e3,
        "run_ms": (done - loaded) * 1e3,
        "outputs": {n: _summary(x, labels) for n, x in outputs.items()},
    }
    if args.output:
        _save(outputs, Path(args.output))
    if args.json:
        emit_json(report)
    else:
        _print(report, outputs, labels)
    return 0


def _labels(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"--labels {path} cannot be read: {error.strerror}") from None


def _is_scores(x: Any, labels: Sequence[str] | None) -> bool:
    """Whether an output has one number a label along its last axis."""
    return (
        labels is not None
        and isinstance(x, np.ndarray)
        and x.ndim >= 1
        and x.shape[-1] == len(labels)
        and x.dtype.kind == "f"
    )


def _top(scores: np.ndarray[Any, Any], labels: Sequence[str]) -> list[dict[str, Any]]:
    order = np.argsort(-scores, kind="stable")[:TOP]
    return [{"label": labels[i], "score": float(scores[i])} for i in order.tolist()]


def _summary(x: Any, labels: Sequence[str] | None) -> dict[str, Any]:
    if not isinstance(x, np.ndarray):
        return {"value": _plain(x)}
    facts: dict[str, Any] = {"dtype": x.dtype.name, "shape": list(x.shape)}
    if _is_scores(x, labels):
        assert labels is not None
        facts["top"] = [_top(row, labels) for row in x.reshape(-1, x.shape[-1])[:SHOWN]]
    facts["first"] = _plain(x.ravel()[:SHOWN])
    if x.size and x.dtype.kind in "fiu":
        wide = x.astype(np.float64)
        facts |= {"min": float(wide.min()), "max": float(wide.max()), "mean": float(wide.mean())}
        facts["nan"] = int(np.isnan(wide).sum())
    return facts


def _plain(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x.tolist() if x.dtype.kind in "fiubO" else [str(e) for e in x]
    if isinstance(x, list):
        return [_plain(e) for e in x[:SHOWN]]
    if isinstance(x, Mapping):
        return {str(k): _plain(v) for k, v in x.items()}
    return x


def _save(outputs: Mapping[str, Any], folder: Path) -> None:
    """Write arrays as .npy files and everything else into outputs.json."""
    folder.mkdir(parents=True, exist_ok=True)
    listing: dict[str, Any] = {}
    for name, x in outputs.items():
        if isinstance(x, np.ndarray) and x.dtype != object:
            file = re.sub(r"[^A-Za-z0-9._-]", "_", name) + ".npy"
            np.save(folder / file, x)
            listing[name] = {"file": file, "dtype": x.dtype.name, "shape": list(x.shape)}
        else:
            listing[name] = {"value": _plain(x)}
    (folder / "outputs.json").write_text(json.dumps(listing, indent=2, default=str) + "\n")


def _print(
    report: Mapping[str, Any], outputs: Mapping[str, Any], labels: Sequence[str] | None
) -> None:
    out = console()
    for name, number in report["assumed"].items():
        out.print(f"assumed {name} = {number}")
    for name, x in outputs.items():
        facts = report["outputs"][name]
        if "top" in facts:
            for row in facts["top"]:
                rows = [(e["label"], f"{e['score']:.4f}", "█" * _bar(e["score"])) for e in row]
                out.print(table((name, "#score", ""), rows))
        elif isinstance(x, np.ndarray):
            out.print(_array_line(name, x, facts))
        else:
            out.print(f"[bold]{name}[/] = {facts['value']}", markup=True)
    out.print(f"device: {report['device']} ({report['reason']})")
    out.print(f"load {report['load_ms']:.1f} ms, run {report['run_ms']:.1f} ms")


def _bar(score: float) -> int:
    return round(20 * min(max(score, 0.0), 1.0))


def _array_line(name: str, x: np.ndarray[Any, Any], facts: Mapping[str, Any]) -> str:
    from rich.markup import escape

    numbers = np.array2string(x.ravel()[:SHOWN], precision=5, separator=" ", max_line_width=200)
    more = " ..." if x.size > SHOWN else ""
    line = f"[bold]{escape(name)}[/] {escape(f'{x.dtype}{list(x.shape)}')}: {escape(numbers)}{more}"
    if "mean" in facts and x.size > 1:
        line += f"  (min {facts['min']:.5g}, mean {facts['mean']:.5g}, max {facts['max']:.5g})"
    return line
