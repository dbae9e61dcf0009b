"""`kn plan`: the steps that a model becomes, their memory and what they cost at least."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from rich.text import Text

from kn_runtime.cli.arguments import add_dims, add_model, add_plan_device, dims_of
from kn_runtime.cli.common import INDENT, counted, emit_json, grid, human_bytes, human_count, show
from kn_runtime.cli.planned import at_sizes, plan_device
from kn_runtime.cli.table import Column, Table, nested_rows

if TYPE_CHECKING:
    from kn_graph.dim import Symbol
    from kn_graph.graph import Graph
    from kn_plan.bodies import BodyReport
    from kn_plan.check import CheckReport
    from kn_plan.report import PlanReport, StepReport
    from kn_runtime.cli.planned import PlanDevice

__all__ = ["EXAMPLES", "add_arguments", "execute"]

EXAMPLES = """examples:
  kn plan model.onnx
  kn plan model.onnx --dim batch=8 --check
  kn plan model.onnx --ablate --device cuda:sm_90
  kn plan model.onnx --json > plan.json

Costs are what has to be computed and moved at least; the bound is the longer of both on the device.
Bodies of If, Loop and Scan follow their step, indented, once each.
"""

COLUMNS = (
    Column("#"),
    Column("node", least=16),
    Column("step", least=10),
    Column("computes", least=8, rank=1),
    Column("flop", right=True, rank=4),
    Column("moves", right=True, rank=3),
    Column("bound us", right=True),
    Column("limited by", least=9, rank=2),
)

ABLATION = (
    Column("planned with", least=14),
    Column("steps", right=True),
    Column("host", right=True, rank=1),
    Column("moved", right=True),
    Column("arena", right=True),
    Column("bound ms", right=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model(parser)
    add_plan_device(parser)
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


@dataclass(frozen=True)
class _Found:
    """What was planned.

    Attributes:
        report: the plan.
        assumed: sizes that nobody gave.
        bodies: plans of control flow.
        checked: whether it is right, if that was asked.
        without: the plans with each mechanism switched off, if asked.
    """

    report: PlanReport
    assumed: Mapping[str, int]
    bodies: Sequence[BodyReport]
    checked: CheckReport | None
    without: Mapping[str, PlanReport]


def execute(args: argparse.Namespace) -> int:
    """Plan, print, check."""
    from kn_graph.onnx import load_graph_from_onnx_path
    from kn_graph.optimizer import optimize_graph
    from kn_plan.check import check_plan
    from kn_plan.numbers import all_numbers

    device = plan_device(args.device)
    graph = load_graph_from_onnx_path(args.model)
    sized = at_sizes(graph if args.raw else optimize_graph(graph), dims_of(args))
    env, late = all_numbers(sized.graph, sized.dims)
    plan = device.plan(sized.graph)
    found = _Found(
        report=device.report(plan, env),
        assumed={**sized.assumed, **late},
        bodies=device.bodies(plan, env),
        checked=check_plan(plan, sized.dims) if args.check else None,
        without=_without_each(sized.graph, env, device) if args.ablate else {},
    )
    if args.json:
        emit_json(_json(args.model, found))
    else:
        show(Text(str(plan))) if args.text else _print(found, device)
        _print_ablation(found)
        _print_check(found.checked)
    return 0 if found.checked is None or found.checked.ok else 1


def _without_each(
    graph: Graph, env: Mapping[Symbol, int], device: PlanDevice
) -> dict[str, PlanReport]:
    """Return the plan with each mechanism switched off."""
    from kn_plan.options import PlanOptions

    found = {}
    for field in fields(PlanOptions):
        options = replace(PlanOptions(), **{field.name: False})
        found[field.name] = device.report(device.plan(graph, options), env, options)
    return found


# ---- JSON -----------------------------------------------------------------------------------


def _json(model: str, found: _Found) -> dict[str, Any]:
    """Return the report, with what was assumed, checked and switched off."""
    facts: dict[str, Any] = {
        "model": model,
        "assumed": dict(found.assumed),
        **asdict(found.report),
        "bodies": [asdict(b) for b in found.bodies],
    }
    if found.checked is not None:
        facts["check"] = {"ok": found.checked.ok, "faults": list(map(str, found.checked.faults))}
    if found.without:
        facts["without"] = {
            name: {"totals": asdict(r.totals), "memory": asdict(r.memory)}
            for name, r in found.without.items()
        }
    return facts


# ---- text -----------------------------------------------------------------------------------


def _print(found: _Found, device: PlanDevice) -> None:
    report = found.report
    totals, memory = report.totals, report.memory
    show(Table(COLUMNS, _rows(found)), "")
    sizes = [f"{n} = {k}{_assumed(n, found)}" for n, k in report.sizes.items()]
    facts = {
        "device": f"{report.device}; {report.device_source}",
        "note": device.note,
        "sizes": ", ".join(sizes),
        "steps": f"{totals.steps} for {totals.nodes} nodes, {totals.host_steps} on the host",
        "bodies": _inside(found.bodies),
        "work": f"{human_count(totals.flops)} flop, {human_bytes(totals.moved_bytes)} moved, "
        f"bound {totals.bound_us / 1e3:.3f} ms",
        "arena": f"{human_bytes(memory.arena)}; at least {human_bytes(memory.lower_bound)}, "
        f"{human_bytes(memory.without_reuse)} without reuse, "
        f"{human_bytes(memory.file_order)} for the nodes one by one",
        "elsewhere": f"{human_bytes(memory.constants)} constants, "
        f"{human_bytes(memory.inputs)} inputs, {human_bytes(memory.outputs)} outputs",
    }
    show(grid((k, v) for k, v in facts.items() if v))


def _inside(bodies: Sequence[BodyReport]) -> str:
    """Return a summary of the plans of control flow."""
    totals = [b.report.totals for b in bodies if b.report]
    steps, host = sum(t.steps for t in totals), sum(t.host_steps for t in totals)
    said = f"{counted(len(bodies), 'body', 'bodies')} with {steps} steps, {host} on the host"
    return said if bodies else ""


def _assumed(name: str, found: _Found) -> str:
    return " (assumed)" if name in found.assumed else ""


def _rows(found: _Found) -> list[Sequence[object]]:
    steps = [("", s) for s in found.report.steps]
    steps += [(b.path, s) for b in found.bodies if b.report for s in b.report.steps]
    titles = {b.path: _title(b) for b in found.bodies}
    return nested_rows(steps, titles, _row)


def _title(body: BodyReport) -> Sequence[object]:
    if body.report is None:
        return ("", body.name, "no plan", "", "", "", "", body.note)
    return ("", body.name, counted(len(body.report.steps), "step"))


def _row(s: StepReport, number: str) -> Sequence[object]:
    return (
        number,
        s.label,
        f"{s.kind} +{s.instructions}" if s.instructions and s.kind != "scalar" else s.kind,
        "x".join(map(str, s.sizes)),
        human_count(s.flops),
        human_bytes(s.read_bytes + s.written_bytes),
        f"{s.bound_us:.1f}",
        f"host: {s.host}" if s.host else s.limit,
    )


def _print_ablation(found: _Found) -> None:
    if not found.without:
        return
    named = {f"without {name}": r for name, r in found.without.items()}
    rows = [
        (
            name,
            r.totals.steps,
            r.totals.host_steps,
            human_bytes(r.totals.moved_bytes),
            human_bytes(r.memory.arena),
            f"{r.totals.bound_us / 1e3:.3f}",
        )
        for name, r in {"all mechanisms": found.report, **named}.items()
    ]
    show("", Table(ABLATION, rows))


def _print_check(checked: CheckReport | None) -> None:
    if checked is None:
        return
    if checked.ok:
        show("", f"checked: all {checked.steps} steps read and write what they should")
    else:
        show("", grid([("wrong", str(f)) for f in checked.faults]), indent=INDENT)
