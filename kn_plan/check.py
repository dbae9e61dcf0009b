"""Whether a plan is right: it computes what its graph says, on memory as it should.

No kernel runs. The plan is carried out over tokens (see `kn_plan.tokens`) for one set of sizes, on
an arena in which every cell knows its token and who wrote it. What is checked:

- the lifetimes cover all writes and reads, and sizes are known before they are used (`structure`);
- every view stays in its buffer (`views`);
- a step reads what was written for it: not before, and not after it was overwritten (`memory`);
- inputs and constants are never written (`read-only`);
- a result takes the place of an operand only element by element (`in-place`);
- each node reads the elements that the graph says, and so does the caller (`meaning`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kn_graph.dim import Symbol
from kn_graph.errors import InternalError
from kn_plan.arena import Allocation
from kn_plan.check_run import TokenRun
from kn_plan.check_structure import structure_faults
from kn_plan.fault import Fault
from kn_plan.memory import arenas
from kn_plan.numbers import all_numbers
from kn_plan.options import PlanOptions
from kn_plan.plan import Plan
from kn_plan.tokens import GraphTokens

__all__ = ["CheckReport", "check_plan"]


@dataclass(frozen=True)
class CheckReport:
    """What was found.

    Attributes:
        faults: nothing where the plan is right.
        steps: how many steps were carried out.
        assumed: numbers taken for sizes that nobody gave, by name.
    """

    faults: tuple[Fault, ...]
    steps: int
    assumed: Mapping[str, int]

    @property
    def ok(self) -> bool:
        """Whether the plan is right."""
        return not self.faults

    def require(self) -> None:
        """Raise where the plan is wrong.

        Raises:
            InternalError: names the first fault.
        """
        if self.faults:
            more = len(self.faults) - 1
            tail = f" (and {more} more faults)" if more else ""
            raise InternalError(f"the plan is wrong: {self.faults[0]}{tail}")


def check_plan(
    plan: Plan,
    dims: Mapping[str, int] | None = None,
    options: PlanOptions | None = None,
    *,
    found: Mapping[Symbol, int] | None = None,
    allocations: Sequence[Allocation] | None = None,
) -> CheckReport:
    """Check a plan for one set of sizes.

    Args:
        plan: what to check.
        dims: numbers of the symbols of the graph's inputs, by name.
        options: those that the plan was made with.
        found: numbers of the sizes that nodes find; some that are legal otherwise.
        allocations: where buffers lie, one a stage, instead of where the allocator puts them.

    Raises:
        SymbolError: a size has no number, or the graph does not allow it.
    """
    env, assumed = all_numbers(plan.graph, dims, found)
    faults = structure_faults(plan, env)
    if faults:
        return CheckReport(tuple(faults), 0, assumed)
    memory = arenas(plan, options or PlanOptions())
    places = allocations or [a.allocate(plan, env) for a in memory]
    with np.errstate(over="ignore"):  # tokens wrap
        run = TokenRun(plan, GraphTokens(plan.graph, env), memory, places)
        return CheckReport(tuple(run.faults()), len(plan.steps), assumed)
