"""`kn bench`: how fast a model runs, in turns with onnxruntime where that is installed."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.errors import UsageError
from kn_runtime.cli import feeds
from kn_runtime.cli.arguments import (
    add_device,
    add_dims,
    add_model,
    add_threads,
    dims_of,
    positive,
)
from kn_runtime.cli.common import emit_json, grid, human_bytes, show
from kn_runtime.cli.progress import progress
from kn_runtime.cli.race import ENGINES, Laps, Race, is_installed, race
from kn_runtime.cli.table import Column, Table

if TYPE_CHECKING:
    from kn_runtime.device import Device

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn bench model.onnx
  kn bench model.onnx --dim batch=8 --threads 1 --seconds 5
  kn bench model.onnx --input x=x.npy --against none --json

Engines take turns, each in a process of its own with as many threads. Inputs that are not given are
made up. Memory is the most in use, without what Python takes; spread is from the fastest tenth of
the calls to the slowest.
"""

OURS, THEIRS = "kn_runtime", "onnxruntime"

COLUMNS = (
    Column("engine"),
    Column("load ms", right=True, rank=1),
    Column("first ms", right=True, rank=1),
    Column("median ms", right=True),
    Column("spread", right=True),
    Column("calls", right=True, rank=2),
    Column("memory", right=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    feeds.add_arguments(parser)
    add_device(parser)
    add_threads(parser)
    parser.add_argument(
        "--seconds", type=_seconds, default=2.0, metavar="S", help="of each engine (default: 2)"
    )
    parser.add_argument(
        "--turns", type=positive, default=10, metavar="N", help="of each engine (default: 10)"
    )
    parser.add_argument(
        "--against",
        choices=(THEIRS, "none"),
        help="whom to compare with (default: onnxruntime, if it is installed)",
    )
    add_dims(parser)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, got {text!r}")
    return number


def execute(args: argparse.Namespace) -> int:
    """Time, print."""
    from kn_graph.onnx import load_graph_from_onnx_path
    from kn_runtime.device import Device
    from kn_runtime.options import PrepareOptions

    device = Device.parse(args.device)
    dims = dims_of(args)
    graph = load_graph_from_onnx_path(args.model, dims=dims).seal()
    args.input = args.input or [feeds.RANDOM]
    given = feeds.read_feeds(graph, args)
    engines, why = _engines(args.against)
    threads = PrepareOptions(threads=args.threads).worker_threads
    with progress("timing", args.turns * len(engines)) as advance:
        found = race(
            args.model,
            given.values,
            engines,
            settings={"threads": threads, "device": str(device), "dims": dims},
            turns=args.turns,
            seconds=args.seconds / args.turns,
            progress=advance,
        )
    if args.json:
        emit_json(_as_dict(args, found, given, device, threads))
    else:
        _print(found, given, device, threads, why)
    return 0


def _engines(against: str | None) -> tuple[list[str], str]:
    """Return who runs, and why nobody else does."""
    if against == "none":
        return [OURS], ""
    if against is None and not is_installed(THEIRS):
        return [OURS], f"{THEIRS} is not installed, so there is nothing to compare with"
    assert ENGINES.keys() >= {OURS, THEIRS}
    return [OURS, THEIRS], ""


def _difference(found: Race) -> float:
    """Return the largest difference of results, over the root mean square of an output.

    It is infinite where one engine has a number and the other a NaN or an infinity.
    """
    import numpy as np

    worst = 0.0
    for name, ours in found.outputs[0].items():
        theirs = found.outputs[1].get(name)
        if not isinstance(ours, np.ndarray) or ours.dtype.kind not in "biuf" or ours.size == 0:
            continue
        if not isinstance(theirs, np.ndarray) or theirs.shape != ours.shape:
            raise UsageError(f"the engines give output {name!r} different shapes")
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        differ = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        apart = np.abs(a[differ] - b[differ])
        if not np.isfinite(apart).all():
            return math.inf  # a number here, none there
        scale = float(np.sqrt(np.mean(np.square(np.where(np.isfinite(b), b, 0))))) or 1.0
        worst = max(worst, float(apart.max(initial=0)) / scale)
    return worst


# ---- results --------------------------------------------------------------------------------


def _name(lap: Laps, device: Device) -> str:
    return f"kn ({device})" if lap.engine == OURS else f"{lap.engine} {lap.version}"


def _as_dict(
    args: argparse.Namespace, found: Race, given: feeds.Feeds, device: Device, threads: int
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "model": args.model,
        "device": str(device),
        "reason": device.reason,
        "threads": threads,
        "random": given.random,
        "assumed": given.assumed,
        "engines": [_lap_dict(lap) for lap in found.laps],
    }
    if len(found.laps) > 1:
        ratios = found.ratios(1)
        facts["times_as_fast"] = {
            "median": round(statistics.median(ratios), 4),
            "least": round(min(ratios), 4),
            "most": round(max(ratios), 4),
        }
        facts["largest_difference"] = _difference(found)
    return facts


def _lap_dict(lap: Laps) -> dict[str, Any]:
    return {
        "engine": lap.engine,
        "version": lap.version,
        "load_ms": round(lap.load_ms, 3),
        "first_ms": round(lap.first_ms, 4),
        "median_ms": round(lap.median_ms, 5),
        "p10_ms": round(lap.quantile_ms(0.1), 5),
        "p90_ms": round(lap.quantile_ms(0.9), 5),
        "calls": len(lap.calls),
        "turn_medians_ms": [round(statistics.median(t), 5) for t in lap.turns],
        "memory_bytes": lap.memory_bytes,
    }


def _print(found: Race, given: feeds.Feeds, device: Device, threads: int, why: str) -> None:
    from rich.text import Text

    show(Table(COLUMNS, [_row(lap, device) for lap in found.laps]), "")
    if len(found.laps) > 1:
        ratios = found.ratios(1)
        middle = statistics.median(ratios)
        style = "bold green" if middle >= 1 else "bold red"
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} turns)"
        said = (f"{middle:.2f} times", style), f" as fast as {THEIRS}{spread}"
        show(Text.assemble("kn is ", *said), "")
    facts: Mapping[str, str] = {
        "note": why,
        "threads": str(threads),
        "random": feeds.few(given.random),
        "assumed": ", ".join(f"{n} = {k}" for n, k in given.assumed.items()),
        "device": f"{device}: {device.reason}",
        "results": _agreement(found),
    }
    show(grid((k, v) for k, v in facts.items() if v))


def _agreement(found: Race) -> str:
    if len(found.laps) < 2:
        return ""
    return f"differ by {_difference(found):.1e} of their size at most (kn compare looks closer)"


def _row(lap: Laps, device: Device) -> Sequence[object]:
    return (
        _name(lap, device),
        f"{lap.load_ms:.0f}",
        _digits(lap.first_ms),
        _digits(lap.median_ms),
        f"{_digits(lap.quantile_ms(0.1))} to {_digits(lap.quantile_ms(0.9))}",
        f"{len(lap.calls):,}",
        human_bytes(lap.memory_bytes),
    )


def _digits(ms: float) -> str:
    """Return milliseconds with three digits at least."""
    return f"{ms:.4f}" if ms < 0.1 else f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"
