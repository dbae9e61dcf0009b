"""What a graph assumes about its inputs while it is loaded: open questions, decided, recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_graph.condition import Condition, Guard, size_eq, size_ge
from kn_graph.dim import Size, Symbol
from kn_graph.ops.source import Input

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.value import Value
    from kn_graph.variants import Assumptions

__all__ = ["Decisions"]


class Decisions:
    """Methods of `Graph` that decide what is open; see `kn_graph.variants` for what follows."""

    if TYPE_CHECKING:
        parent: Graph | None
        assumed: Assumptions | None
        assumed_values: dict[str, tuple[int, ...]]
        guards: list[Guard]

        @property
        def root(self) -> Graph:
            """The outermost graph."""

        def input_symbols(self) -> frozenset[Symbol]:
            """Return the symbols that inputs bind."""

    def decide_equal(self, a: Size, b: Size, why: str) -> bool | None:
        """Decide whether two sizes are equal, and take them to be so first; see `decide`."""
        truth = size_eq(a, b)
        return truth if isinstance(truth, bool) else self.decide(truth, why, prefer=True)

    def decide_ge(self, a: Size, b: Size, why: str) -> bool | None:
        """Decide whether a >= b, and take it to be so first; see `decide`."""
        truth = size_ge(a, b)
        return truth if isinstance(truth, bool) else self.decide(truth, why, prefer=True)

    def decide(self, condition: Condition, why: str, *, prefer: bool | None = None) -> bool | None:
        """Decide a condition on input sizes once for this graph, and record the guard.

        Args:
            condition: what is open.
            why: what needs it decided.
            prefer: what to take it for where no likely sizes are known.

        Returns:
            None where the condition depends on sizes that only show at run time, or the graph could
            not be built again under another assumption, as one built by hand.
        """
        root = self.root
        if root.assumed is None or not condition.symbols <= root.input_symbols():
            return None
        around: Decisions | None = self
        while around is not None:
            for guard in around.guards:
                if guard.condition == condition:
                    return guard.decided
            around = around.parent
        forced = str(condition) in root.assumed.forced
        guard = Guard(condition, root.assumed.decide(condition, prefer), why, forced)
        self.guards.append(guard)
        if self is not root:
            root.body_guards.append(guard)
        return guard.decided

    def decide_value(self, value: Value, guess: tuple[int, ...]) -> tuple[int, ...] | None:
        """Decide the elements of a small integer input that the structure follows from.

        Returns:
            None where the value is not an input of the outermost graph.
        """
        root = self.root
        names = [v.name for v in root.inputs]
        if root.assumed is None or not isinstance(value.node.op, Input) or value.name not in names:
            return None
        known = root.assumed.values.get(value.name, guess)
        return root.assumed_values.setdefault(value.name, known)
