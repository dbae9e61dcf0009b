"""`kn check`: whether a model loads, plans and fits, without running it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kn_graph.errors import KnError, UnsupportedOnDeviceError, UsageError
from kn_runtime.cli.arguments import add_dims, add_model, add_plan_device, dims_of
from kn_runtime.cli.common import INDENT, counted, emit_json, grid, human_bytes, show
from kn_runtime.cli.planned import AtSizes, PlanDevice, at_sizes, plan_device
from kn_runtime.cli.table import Column, Table

if TYPE_CHECKING:
    from kn_cuda.inspection import Inspection, KernelReport
    from kn_graph.dim import Symbol
    from kn_graph.graph import Graph
    from kn_plan.bodies import BodyReport
    from kn_plan.plan import Plan
    from kn_plan.report import PlanReport, StepReport

__all__ = ["EXAMPLES", "GPU_STAGES", "STAGES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn check model.onnx
  kn check model.onnx --dim batch=8 --no-host
  kn check model.onnx --device cuda:sm_90 --json
  kn check model.onnx --arch sm_90 --cudnn

The model is loaded, optimized and planned, and every element that the plan reads and writes is
verified for the sizes shown; no kernel runs and no device is needed. Exits with 1 where one of
these fails: what comes after it is not looked at.
"""

CONTROL = ("If", "Loop", "Scan")

STEPS = (
    Column("step", least=10),
    Column("count", right=True),
    Column("runs on"),
    Column("first node", least=16, rank=1),
    Column("why", least=12, rank=2),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    add_plan_device(parser)
    parser.add_argument(
        "--arch", metavar="ARCH", help="of a GPU, such as sm_90: short for --device cuda:ARCH"
    )
    add_dims(parser)
    parser.add_argument(
        "--cudnn",
        action="store_true",
        help="ask cuDNN for every convolution, for a GPU that is described",
    )
    parser.add_argument(
        "--no-host",
        action="store_true",
        help="exit with 1 where a step has no kernel of the device",
    )


# ---- stages ---------------------------------------------------------------------------------


@dataclass
class _Subject:
    """What is checked, and what earlier stages made of it."""

    path: str
    dims: Mapping[str, int]
    device: PlanDevice
    no_host: bool
    cudnn: bool = False
    graph: Graph | None = None
    sized: AtSizes | None = None
    plan: Plan | None = None
    env: dict[Symbol, int] = field(default_factory=dict)
    report: PlanReport | None = None
    bodies: list[BodyReport] = field(default_factory=list)
    inspections: list[Inspection] = field(default_factory=list)
    gpu: _OnGpu | None = None

    @property
    def steps(self) -> list[StepReport]:
        """All steps, those of control-flow bodies too."""
        inside = [s for b in self.bodies if b.report for s in b.report.steps]
        return [*(self.report.steps if self.report else ()), *inside]


def _load(subject: _Subject) -> str:
    from kn_graph.onnx import load_graph_from_onnx_path
    from kn_runtime.model_info import model_info

    if not Path(subject.path).is_file():
        raise UsageError(f"there is no file {subject.path}")
    subject.graph = load_graph_from_onnx_path(subject.path)
    info = model_info(subject.path)
    opsets = ", ".join(f"{d} {v}" for d, v in info.opsets.items())
    kinds = counted(len(info.operators), "operator")
    return f"{counted(info.nodes, 'node')} of {kinds}, all supported; opset {opsets}"


def _optimize(subject: _Subject) -> str:
    from kn_graph.optimizer import optimize_graph_report

    assert subject.graph is not None
    subject.graph, report = optimize_graph_report(subject.graph)
    subject.graph.verify()
    return f"{report.nodes_before:,} graph nodes become {report.nodes_after:,}"


def _sizes(subject: _Subject) -> str:
    from kn_plan.numbers import all_numbers

    assert subject.graph is not None
    subject.sized = at_sizes(subject.graph, subject.dims)
    subject.env, late = all_numbers(subject.sized.graph, subject.sized.dims)
    assumed = {**subject.sized.assumed, **late}
    texts = {s.name: n for s, n in subject.env.items()}
    return ", ".join(f"{n} = {k}{' (assumed)' * (n in assumed)}" for n, k in texts.items()) or (
        "none is symbolic"
    )


def _plan(subject: _Subject) -> str:
    assert subject.sized is not None
    subject.plan = subject.device.plan(subject.sized.graph)
    subject.report = subject.device.report(subject.plan, subject.env)
    subject.bodies = subject.device.bodies(subject.plan, subject.env)
    counts = Counter(map(_place, subject.steps))
    kinds = ", ".join(f"{counts[place]} {place}" for place in ("device", "control", "host"))
    if subject.no_host and counts["host"]:
        first = next(s for s in subject.steps if s.host)
        raise UnsupportedOnDeviceError(
            f"{counted(counts['host'], 'step')} would run on the host, the first {first.label} "
            f"({first.kind}): {first.host}"
        )
    inside = f", {counted(len(subject.bodies), 'body', 'bodies')} among them"
    return f"{counted(len(subject.steps), 'step')}: {kinds}" + inside * bool(subject.bodies)


def _verify(subject: _Subject) -> str:
    from kn_plan.check import check_plan

    assert subject.plan is not None
    assert subject.sized is not None
    check_plan(subject.plan, subject.sized.dims).require()
    checked = len(subject.plan.steps)
    inner, skipped = _inner_plans(subject)
    for name, plan, numbers in inner:
        try:
            check_plan(plan, found=numbers).require()
        except KnError as error:
            error.add_context(name)
            raise
        checked += len(plan.steps)
    said = f"every element that {counted(checked, 'step')} read and write"
    less = f"; {counted(skipped, 'body', 'bodies')} cannot run at these sizes"
    return said + less * bool(skipped)


def _inner_plans(
    subject: _Subject,
) -> tuple[list[tuple[str, Plan, Mapping[Symbol, int]]], int]:
    """Return the plans of all bodies with names and numbers, and how many cannot run."""
    from kn_graph.errors import SymbolError
    from kn_plan.bodies import body_numbers, named_bodies

    assert subject.plan is not None
    found: list[tuple[str, Plan, Mapping[Symbol, int]]] = []
    skipped = 0
    pending: list[tuple[Plan, Mapping[Symbol, int]]] = [(subject.plan, subject.env)]
    while pending:
        plan, env = pending.pop()
        for step in plan.steps:
            for name, body in named_bodies(step.node):
                assert step.node is not None
                try:
                    numbers = body_numbers(step.node, body, env)
                except SymbolError:  # it cannot run at these sizes
                    skipped += 1
                    continue
                inner = subject.device.plan(body)
                found.append((f"{name} of {step.label}", inner, numbers))
                pending.append((inner, numbers))
    return found, skipped


def _memory(subject: _Subject) -> str:
    assert subject.report is not None
    memory = subject.report.memory
    return (
        f"{human_bytes(memory.arena)} arena (at least {human_bytes(memory.lower_bound)}), "
        f"{human_bytes(memory.constants)} constants, {human_bytes(memory.inputs)} inputs, "
        f"{human_bytes(memory.outputs)} outputs"
    )


# ---- a GPU ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OnGpu:
    """What a model would have a GPU do, its bodies of control flow included, each once.

    Attributes:
        launches: kernels, a library's call counted as one for each batch.
        library_calls: those of libraries.
        read_backs: sizes that are read back from the device.
        arena: bytes of intermediate results.
        lower_bound: no order of places needs less.
        workspace: bytes behind the arena, for the step that needs most.
        kernels: what our kernels need; None where one does not compile.
    """

    launches: int
    library_calls: int
    read_backs: int
    arena: int
    lower_bound: int
    workspace: int
    kernels: KernelReport | None = None


def _kernels(subject: _Subject) -> str:
    from kn_cuda.inspection import inspect_plan, kernel_report

    assert subject.plan is not None
    arch = subject.device.arch
    assert arch is not None
    inner, _ = _inner_plans(subject)
    plans = [(subject.plan, subject.env), *((plan, env) for _, plan, env in inner)]
    found = subject.inspections = [inspect_plan(plan, env, arch) for plan, env in plans]
    gpu = subject.gpu = _OnGpu(
        sum(i.launches for i in found),
        sum(i.library_calls for i in found),
        sum(i.read_backs for i in found),
        sum(i.arena for i in found),
        sum(i.lower_bound for i in found),
        max(i.workspace for i in found),
    )
    report = kernel_report(list({k.name: k for i in found for k in i.kernels}.values()), arch)
    subject.gpu = replace(gpu, kernels=report)
    report.require()
    return (
        f"{counted(gpu.launches, 'launch', 'launches')}, {gpu.library_calls} by libraries, "
        f"{counted(gpu.read_backs, 'size')} read back; {counted(report.kernels, 'kernel')} {report}"
    )


def _arena(subject: _Subject) -> str:
    gpu = subject.gpu
    assert gpu is not None
    if gpu.arena > MOST_ARENA * gpu.lower_bound:
        raise UnsupportedOnDeviceError(
            f"the arena takes {gpu.arena:,} bytes, more than {MOST_ARENA} times the "
            f"{gpu.lower_bound:,} that live at once; PlanOptions with other mechanisms may need "
            "less"
        )
    return (
        f"{human_bytes(gpu.arena)}, at least {human_bytes(gpu.lower_bound)}, and "
        f"{human_bytes(gpu.workspace)} behind it for a single step"
    )


def _cudnn(subject: _Subject) -> str:
    from kn_cuda.deviceless import DEVICES, ask, missing

    asked = list(dict.fromkeys(c for i in subject.inspections for c in i.convolutions))
    if not subject.cudnn:
        return f"not asked for {counted(len(asked), 'graph')}: see --cudnn"
    arch, reason = subject.device.arch, missing()
    assert arch is not None
    if reason is not None or arch not in DEVICES:
        return f"not asked: {reason or f'no board of {arch} is described'}"
    refused = [a.refusal for a in ask(asked, arch) if a.refusal]
    if refused:
        raise UnsupportedOnDeviceError(
            f"cuDNN refuses {len(refused)} of {len(asked)} graphs, the first: {refused[0]}"
        )
    return f"accepts {counted(len(asked), 'graph')}"


MOST_ARENA = 1.15
"""How often what lives at once an arena may take."""

GPU_STAGES: Mapping[str, Callable[[_Subject], str]] = {
    "kernels": _kernels,
    "arena": _arena,
    "cudnn": _cudnn,
}
"""What follows for a GPU."""

STAGES: Mapping[str, Callable[[_Subject], str]] = {
    "load": _load,
    "optimize": _optimize,
    "sizes": _sizes,
    "plan": _plan,
    "verify": _verify,
    "memory": _memory,
}
"""What is done in turn: each says what it found, or raises."""

OF_THE_CALLER = ("sizes",)
"""Stages whose failure is no answer, but the fault of the arguments."""


def _place(step: StepReport) -> str:
    return "control" if step.kind in CONTROL else "host" if step.host else "device"


# ---- the verb -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Finding:
    """What one stage found.

    Attributes:
        check: the stage.
        ok: whether it went well.
        text: what was found, or what is wrong.
        category: of the error.
    """

    check: str
    ok: bool
    text: str
    category: str | None = None


def execute(args: argparse.Namespace) -> int:
    """Check, print, answer."""
    device = plan_device(f"cuda:{args.arch}" if args.arch else args.device)
    subject = _Subject(args.model, dims_of(args), device, args.no_host, args.cudnn)
    found = list(_findings(subject))
    ok = all(f.ok for f in found)
    if args.json:
        emit_json(_as_dict(subject, found, ok))
    else:
        _print(subject, found, ok)
    return 0 if ok else 1


def _findings(subject: _Subject) -> Iterator[_Finding]:
    stages = {**STAGES, **(GPU_STAGES if subject.device.arch else {})}
    for name, stage in stages.items():
        try:
            yield _Finding(name, True, stage(subject))
        except KnError as error:
            if name in OF_THE_CALLER or not Path(subject.path).is_file():
                raise
            yield _Finding(name, False, str(error), error.category)
            return


def _kinds(subject: _Subject) -> list[dict[str, Any]]:
    """Return kinds of steps with where they run, host steps with their reasons first."""
    found: dict[tuple[str, str, str], list[StepReport]] = {}
    for s in subject.steps:
        found.setdefault((_place(s), s.kind, s.host or ""), []).append(s)
    order = ("host", "control", "device")
    rows = sorted(found.items(), key=lambda item: (order.index(item[0][0]), -len(item[1])))
    return [
        {"kind": kind, "count": len(steps), "on": place, "first": steps[0].label, "why": why}
        for (place, kind, why), steps in rows
    ]


def _as_dict(subject: _Subject, found: list[_Finding], ok: bool) -> dict[str, Any]:
    counts = Counter(map(_place, subject.steps))
    return {
        "model": subject.path,
        "device": subject.device.name,
        "ok": ok,
        "checks": [asdict(f) for f in found],
        "sizes": {s.name: n for s, n in subject.env.items()},
        "assumed": subject.sized.assumed if subject.sized else {},
        "steps": {place: counts[place] for place in ("device", "control", "host")},
        "kinds": _kinds(subject),
        "memory": asdict(subject.report.memory) if subject.report else None,
        "gpu": asdict(subject.gpu) if subject.gpu else None,
        "note": subject.device.note,
    }


def _print(subject: _Subject, found: list[_Finding], ok: bool) -> None:
    from rich.text import Text

    marks = {True: ("ok", "green"), False: ("no", "bold red")}
    show(grid((f.check, Text(*marks[f.ok]), f.text) for f in found))
    kinds = _kinds(subject)
    if kinds:
        rows = [(k["kind"], k["count"], k["on"], k["first"], k["why"]) for k in kinds]
        show("", Table(STEPS, rows), indent=INDENT)
    where = f"on {subject.device.name}" + f" ({subject.device.note})" * bool(subject.device.note)
    word, style = ("is fine", "bold green") if ok else ("is not fine", "bold red")
    show("", Text.assemble((subject.path, "bold"), " ", (word, style), f" {where}"))
