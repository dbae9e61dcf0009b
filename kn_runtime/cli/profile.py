"""`kn profile`: how long each step of a model takes on the CPU."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kn_graph.errors import DeviceUnavailableError, UsageError
from kn_runtime.cli import feeds
from kn_runtime.cli.arguments import (
    add_dims,
    add_model,
    add_runs,
    add_threads,
    dims_of,
    positive,
    write_text,
)
from kn_runtime.cli.common import counted, emit_json, grid, human_bytes, human_count, show
from kn_runtime.cli.table import Column, Table, nested_rows

if TYPE_CHECKING:
    from kn_cpu.executor import CpuExecutor
    from kn_cpu.profile import BodyProfile, Profile
    from kn_plan.step_profile import StepProfile

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn profile model.onnx
  kn profile model.onnx --dim batch=8 --threads 1 --sort time --top 10
  kn profile model.onnx --input x=x.npy --json
  kn profile model.onnx --html profile.html --trace profile.json --memory memory.svg

Inputs that are not given are made up. A step is reached by 100 % where it takes no longer than
computing and moving at the rates measured on this machine just before; small steps cannot.
"""

COLUMNS = (
    Column("#"),
    Column("node", least=16),
    Column("step", least=10),
    Column("computes", least=8, rank=2),
    Column("us", right=True),
    Column("share", right=True),
    Column("flop/s", right=True, rank=4),
    Column("bytes/s", right=True, rank=4),
    Column("reached", right=True),
    Column("by", least=14, rank=5),
)

KINDS = (
    Column("step", least=10),
    Column("times", right=True),
    Column("us", right=True),
    Column("share", right=True),
    Column("reached", right=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    feeds.add_arguments(parser)
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu (the only one yet)")
    add_threads(parser)
    add_runs(parser)
    parser.add_argument(
        "--sort", choices=("order", "time"), default="order", help="which steps come first"
    )
    parser.add_argument("--top", type=positive, metavar="N", help="print the first N steps only")
    files = parser.add_argument_group("files")
    files.add_argument(
        "--html", metavar="FILE", help="a page to look through: blocks as wide as they take time"
    )
    files.add_argument(
        "--trace", metavar="FILE", help="a timeline for ui.perfetto.dev or chrome://tracing"
    )
    files.add_argument(
        "--memory", metavar="FILE.svg", help="a picture of the arena over the time of a call"
    )
    add_dims(parser)


def execute(args: argparse.Namespace) -> int:
    """Run, time, print."""
    from kn_cpu.executor import CpuExecutor
    from kn_cpu.native import library, unavailable_reason
    from kn_cpu.peak import measure_peak
    from kn_cpu.profile import profile
    from kn_graph.onnx import load_graph_from_onnx_path
    from kn_graph.optimizer import optimize_graph
    from kn_runtime.options import PrepareOptions

    if args.device not in ("cpu", "best"):
        raise UsageError(f"kn profile measures the planned CPU; got --device {args.device}")
    kernels = library()
    if kernels is None:
        reason = str(unavailable_reason())
        raise DeviceUnavailableError(f"there are no steps to time: {reason}", (reason,))
    graph = optimize_graph(load_graph_from_onnx_path(args.model, dims=dims_of(args)).seal())
    args.input = args.input or [feeds.RANDOM]
    given = feeds.read_feeds(graph, args)
    threads = PrepareOptions(threads=args.threads).worker_threads
    executor = CpuExecutor(graph, kernels, threads)
    measured = profile(executor, given.values, measure_peak(kernels, threads), runs=args.runs)
    written = _write(args, measured, executor, given)
    if args.json:
        facts = {"model": args.model, "random": given.random, "assumed": given.assumed}
        emit_json({**facts, **asdict(measured), "written": written})
    else:
        _print(measured, given.assumed, by_time=args.sort == "time", top=args.top)
        if written:
            show(grid([("written", ", ".join(written))]))
    return 0


def _write(
    args: argparse.Namespace, measured: Profile, executor: CpuExecutor, given: feeds.Feeds
) -> list[str]:
    """Write the files asked for, and return their names."""
    from kn_runtime.cli.flame import flame_text
    from kn_runtime.cli.trace import trace_text

    name = Path(args.model).name
    makers: dict[str, Callable[[], str]] = {
        "html": lambda: flame_text(measured, name),
        "trace": lambda: trace_text(measured, name),
        "memory": lambda: _memory_text(measured, executor, given, name),
    }
    wanted = {what: getattr(args, what) for what in makers if getattr(args, what) is not None}
    for what, path in wanted.items():
        write_text(path, makers[what]())
    return list(wanted.values())


def _memory_text(measured: Profile, executor: CpuExecutor, given: feeds.Feeds, name: str) -> str:
    from kn_graph.variants import open_call
    from kn_plan.numbers import all_numbers
    from kn_plan.report import plan_report
    from kn_runtime.cli.memory_plot import memory_svg

    call = open_call(executor.graph, given.values)
    plan = executor.skeleton(call.graph).plan
    late = {s: measured.sizes[s.name] for s in call.graph.size_sources if s.name in measured.sizes}
    env, _ = all_numbers(call.graph, {}, {**call.env, **late})
    report = plan_report(plan, env, measured.peak.spec(0))
    return memory_svg(report, [s.time_us for s in measured.steps], name)


# ---- text -----------------------------------------------------------------------------------


def _print(
    measured: Profile, assumed: Mapping[str, int], *, by_time: bool, top: int | None
) -> None:
    if by_time or top is not None:
        steps = sorted(measured.steps, key=lambda s: -s.time_us) if by_time else measured.steps
        rows = [_row(s, str(s.number)) for s in steps[:top]]
    else:
        rows = _nested(measured)
    show(Table(COLUMNS, rows), "")
    show(Table(KINDS, _kinds(measured.steps)), "")
    show(grid((k, v) for k, v in _facts(measured, assumed).items() if v))


def _nested(measured: Profile) -> list[Sequence[object]]:
    """Return a row for each step, those of bodies behind the step that runs them."""
    steps = [("", s) for s in measured.steps]
    steps += [(b.path, s) for b in measured.bodies for s in b.steps]
    titles = {b.path: _title(b) for b in measured.bodies}
    return nested_rows(steps, titles, _row, len(COLUMNS))


def _title(b: BodyProfile) -> Sequence[object]:
    if not b.calls:
        return ("", b.name, "not run")
    return ("", b.name, counted(b.calls, "call"), "", f"{b.time_us:.1f}")


def _row(s: StepProfile, number: str) -> Sequence[object]:
    seconds = s.time_us * 1e-6
    return (
        number,
        s.label,
        f"{s.kind} +{s.instructions}" if s.instructions and s.kind != "scalar" else s.kind,
        "x".join(map(str, s.shape)),
        f"{s.time_us:.1f}",
        f"{s.share:.1%}",
        human_count(s.flops / seconds) if s.flops and seconds else "",
        human_bytes(s.moved_bytes / seconds) if seconds else "",
        f"{s.reached:.0%}",
        f"host: {s.host}" if s.host else ", ".join(k.rpartition(".")[2] for k in s.kernels),
    )


def _kinds(steps: Iterable[StepProfile]) -> list[Sequence[str]]:
    """Return a row for each kind of step, those that take longest first."""
    found: dict[str, list[StepProfile]] = {}
    for s in steps:
        found.setdefault(s.kind, []).append(s)
    times = {kind: sum(s.time_us for s in rows) for kind, rows in found.items()}
    return [
        (
            kind,
            str(len(found[kind])),
            f"{times[kind]:.1f}",
            f"{sum(s.share for s in found[kind]):.1%}",
            f"{sum(s.bound_us for s in found[kind]) / times[kind]:.0%}" if times[kind] else "",
        )
        for kind in sorted(found, key=lambda k: -times[k])
    ]


def _facts(measured: Profile, assumed: Mapping[str, int]) -> dict[str, str]:
    peak: Any = measured.peak
    (_, cached), (_, far) = peak.streams[0], peak.streams[-1]
    rates = f"{human_bytes(cached)}/s in cache, {human_bytes(far)}/s from memory"
    sizes = [f"{n} = {k}" for n, k in {**measured.sizes, **assumed}.items()]
    host = sum(s.host is not None for s in measured.steps)
    return {
        "device": f"{peak.name}; measured {human_count(peak.flops)} flop/s, {rates}",
        "sizes": ", ".join(sizes),
        "steps": f"{len(measured.steps)}, {host} on the host; median of {measured.runs} runs",
        "time": f"{measured.call_us / 1e3:.3f} ms a call, {measured.steps_us / 1e3:.3f} ms its "
        f"steps one by one, {measured.bound_us / 1e3:.3f} ms at least",
    }
