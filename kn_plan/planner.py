"""The planner: expansion, groups, formats, steps, lifetimes."""

from __future__ import annotations

from kn_graph.graph import Graph
from kn_plan.constant import fold_constants
from kn_plan.expand import expand_graph
from kn_plan.group import form_groups
from kn_plan.lower import lower
from kn_plan.merge import merge_single
from kn_plan.options import PlanOptions
from kn_plan.plan import Plan
from kn_plan.schedule import schedule
from kn_plan.target import NeutralTarget, Target

__all__ = ["plan_graph"]


def plan_graph(
    graph: Graph, target: Target | None = None, options: PlanOptions | None = None
) -> Plan:
    """Return the plan of a graph, over its symbolic sizes.

    Args:
        graph: any graph; optimize it first.
        target: what the device can do.
        options: which mechanisms are on.
    """
    chosen, device = options or PlanOptions(), target or NeutralTarget()
    if chosen.expand:
        graph = expand_graph(graph, device)
    groups = form_groups(graph, device, chosen)
    if chosen.merge_single and chosen.fuse_scalars:
        groups = merge_single(graph, groups, device.max_instructions)
    plan = lower(graph, groups, device, chosen)
    if chosen.fold_constants:
        plan = fold_constants(plan)
    return schedule(plan, chosen)
