"""`kn plan`: the steps that a model becomes, their memory and what they cost at least."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from kn_graph.errors import UsageError
from kn_runtime.cli.arguments import add_dims, add_model, dims_of
from kn_runtime.cli.common import INDENT, emit_json, grid, human_bytes, human_count, show

if TYPE_CHECKING:
    from kn_graph.dim import Symbol
    from kn_graph.graph import Graph
    from kn_plan.check import CheckReport
    from kn_plan.device_spec import DeviceSpec
    from kn_plan.options import PlanOptions
    from kn_plan.plan import Plan
    from kn_plan.report import PlanReport
    from kn_plan.target import Target

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn plan model.onnx
  kn plan model.onnx --dim batch=8 --check
  kn plan model.onnx --ablate --device cuda:sm_90
  kn plan model.onnx --json > plan.json

Costs are what has to be computed and moved at least; the bound is the longer of both on the device.
"""

DEVICES = "cpu, neutral or cuda:ARCH, such as cuda:sm_90"


@dataclass(frozen=True)
class _Device:
    """What a plan is made for.

    Attributes:
        target: what the planner asks.
        spec: what bounds are for.
        native: whether steps are looked up among native kernels.
        note: what the reader should know.
    """

    target: Target
    spec: DeviceSpec
    native: bool
    note: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    parser.add_argument("--device", default="cpu", metavar="NAME", help=f"{DEVICES} (default: cpu)")
    add_dims(parser)
    parser.add_argument("--raw", action="store_true", help="plan the model without optimizing it")
    parser.add_argument(
        "--check",
        action="store_true",
        help="verify every element without running; exit with 1 where the plan is wrong",
    )
    parser.add_argument(
        "--ablate", action="store_true", help="also plan with each mechanism switched off"
    )
    parser.add_argument("--text", action="store_true", help="print buffers and steps as they are")


def execute(args: argparse.Namespace) -> int:
    """Plan, print, check."""
    from kn_plan.check import check_plan
    from kn_plan.numbers import all_numbers
    from kn_plan.options import PlanOptions

    device = _device(args.device)
    graph, dims, assumed = _graph(args.model, dims_of(args), raw=args.raw)
    env, found = all_numbers(graph, dims)
    plan = _planned(graph, device, PlanOptions())
    report = _report(plan, env, device, PlanOptions())
    checked = check_plan(plan, dims) if args.check else None
    variants = _without_each(graph, env, device) if args.ablate else {}
    assumed |= found
    if args.json:
        emit_json(_json(args, report, assumed, checked, variants))
    elif args.text:
        show(_plain(str(plan)))
    else:
        _print(report, assumed, device)
    if not args.json:
        _print_ablation(report, variants)
        _print_check(checked)
    return 0 if checked is None or checked.ok else 1


# ---- planning -------------------------------------------------------------------------------


def _device(name: str) -> _Device:
    from kn_plan.device_spec import CUDA_SPECS
    from kn_plan.target import NeutralTarget

    if name in ("cpu", "neutral"):
        return _cpu(native=name == "cpu")
    kind, _, arch = name.partition(":")
    if kind == "cuda" and arch in CUDA_SPECS:
        note = "no CUDA planner yet: planned for a neutral device, bounds are for this one"
        return _Device(NeutralTarget(), CUDA_SPECS[arch], False, note)
    if kind == "cuda":
        known = ", ".join(CUDA_SPECS)
        raise UsageError(
            f"kn plan --device {name}: a GPU is described by its architecture, such as cuda:sm_90; "
            f"known are {known}"
        )
    raise UsageError(f"unknown device {name!r}; expected {DEVICES}")


def _cpu(*, native: bool) -> _Device:
    from kn_cpu.native import library, unavailable_reason
    from kn_cpu.target import CpuTarget
    from kn_plan.device_spec import cpu_spec
    from kn_plan.target import NeutralTarget
    from kn_runtime.options import PrepareOptions

    kernels = library()
    spec = cpu_spec(kernels.isa if kernels else "base", PrepareOptions().worker_threads)
    if not native:
        return _Device(NeutralTarget(), spec, False, "planned for a neutral device")
    missing = kernels is None
    note = f"host steps are not known: {unavailable_reason()}" if missing else ""
    return _Device(CpuTarget(), spec, not missing, note)


def _graph(
    path: str, given: Mapping[str, int], *, raw: bool
) -> tuple[Graph, dict[str, int], dict[str, int]]:
    """Return the graph that holds for some sizes, all sizes, and those that were assumed."""
    from kn_graph.onnx import load_graph_from_onnx_path
    from kn_graph.optimizer import optimize_graph
    from kn_graph.variants import symbols_by_name
    from kn_runtime.assume import assumed_sizes

    graph = load_graph_from_onnx_path(path)
    graph = graph if raw else optimize_graph(graph)
    known = {s.name: n for s, n in symbols_by_name(graph, given).items()}
    assumed = assumed_sizes(graph, known)
    sizes = {**known, **assumed}
    variant = graph.variant(symbols_by_name(graph, sizes))
    return variant, {n: k for n, k in sizes.items() if n in variant.symbols}, assumed


def _planned(graph: Graph, device: _Device, options: PlanOptions) -> Plan:
    from kn_plan.planner import plan_graph

    return plan_graph(graph, device.target, options)


def _report(
    plan: Plan, env: Mapping[Symbol, int], device: _Device, options: PlanOptions
) -> PlanReport:
    from kn_plan.report import plan_report

    host: dict[int, str] = {}
    if device.native:
        from kn_cpu.explain import host_reasons
        from kn_cpu.native import library

        kernels = library()
        assert kernels is not None
        host = host_reasons(plan, kernels)
    return plan_report(plan, env, device.spec, options, host=host)


def _without_each(
    graph: Graph, env: Mapping[Symbol, int], device: _Device
) -> dict[str, PlanReport]:
    """Return the plan with each mechanism switched off."""
    from kn_plan.options import PlanOptions

    found = {}
    for field in fields(PlanOptions):
        options = replace(PlanOptions(), **{field.name: False})
        found[field.name] = _report(_planned(graph, device, options), env, device, options)
    return found


# ---- JSON -----------------------------------------------------------------------------------


def _json(
    args: argparse.Namespace,
    report: PlanReport,
    assumed: Mapping[str, int],
    checked: CheckReport | None,
    variants: Mapping[str, PlanReport],
) -> dict[str, Any]:
    """Return the report, with what was assumed, checked and switched off."""
    facts: dict[str, Any] = {"model": args.model, "assumed": dict(assumed), **asdict(report)}
    if checked is not None:
        facts["check"] = {"ok": checked.ok, "faults": list(map(str, checked.faults))}
    if variants:
        facts["without"] = {
            name: {"totals": asdict(r.totals), "memory": asdict(r.memory)}
            for name, r in variants.items()
        }
    return facts


# ---- text -----------------------------------------------------------------------------------


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)


def _print(report: PlanReport, assumed: Mapping[str, int], device: _Device) -> None:
    totals, memory = report.totals, report.memory
    rows = [
        (
            s.number,
            s.label,
            f"{s.kind} +{s.instructions}" if s.instructions and s.kind != "scalar" else s.kind,
            "x".join(map(str, s.sizes)),
            human_count(s.flops),
            human_bytes(s.read_bytes + s.written_bytes),
            f"{s.bound_us:.1f}",
            f"host: {s.host}" if s.host else s.limit,
        )
        for s in report.steps
    ]
    headers = ("##", "node", "step", "computes", "#flop", "#moves", "#bound us", "limited by")
    show(grid(rows, headers), "")
    sizes = {n: f"{k} (assumed)" if n in assumed else str(k) for n, k in report.sizes.items()}
    facts = {
        "device": f"{report.device}; {report.device_source}",
        "note": device.note,
        "sizes": ", ".join(f"{n} = {k}" for n, k in sizes.items()),
        "steps": f"{totals.steps} for {totals.nodes} nodes, {totals.host_steps} on the host",
        "work": f"{human_count(totals.flops)} flop, {human_bytes(totals.moved_bytes)} moved, "
        f"bound {totals.bound_us / 1e3:.3f} ms",
        "arena": f"{human_bytes(memory.arena)}; at least {human_bytes(memory.lower_bound)}, "
        f"{human_bytes(memory.without_reuse)} without reuse, "
        f"{human_bytes(memory.file_order)} for the nodes one by one",
        "elsewhere": f"{human_bytes(memory.constants)} constants, "
        f"{human_bytes(memory.inputs)} inputs, {human_bytes(memory.outputs)} outputs",
    }
    show(grid((k, v) for k, v in facts.items() if v))


def _print_ablation(report: PlanReport, variants: Mapping[str, PlanReport]) -> None:
    if not variants:
        return
    rows = [
        (
            name,
            r.totals.steps,
            r.totals.host_steps,
            human_bytes(r.totals.moved_bytes),
            human_bytes(r.memory.arena),
            f"{r.totals.bound_us / 1e3:.3f}",
        )
        for name, r in {"all mechanisms": report, **_named(variants)}.items()
    ]
    headers = ("planned with", "#steps", "#host", "#moved", "#arena", "#bound ms")
    show("", grid(rows, headers))


def _named(variants: Mapping[str, PlanReport]) -> dict[str, PlanReport]:
    return {f"without {name}": r for name, r in variants.items()}


def _print_check(checked: CheckReport | None) -> None:
    if checked is None:
        return
    if checked.ok:
        show("", f"checked: all {checked.steps} steps read and write what they should")
    else:
        show("", grid([("wrong", str(f)) for f in checked.faults]), indent=INDENT)
