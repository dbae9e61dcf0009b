"""What the optimizer did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["OptimizerReport"]


@dataclass
class OptimizerReport:
    """Which rules fired how often, and which refused why.

    Attributes:
        nodes_before: nodes of the graph given, dead ones left out.
        nodes_after: nodes of the result.
        fired: {rule: count}.
        refused: {(rule, reason): count}.
        refused_at: {(rule, reason): ONNX name of the first node concerned}.
        steps: nodes looked at.
    """

    nodes_before: int = 0
    nodes_after: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused_at: dict[tuple[str, str], str] = field(default_factory=dict)
    steps: int = 0

    def refuse(self, rule: str, reason: str, node: str) -> None:
        """Count a refusal."""
        self.refused[rule, reason] += 1
        self.refused_at.setdefault((rule, reason), node)

    def __str__(self) -> str:
        """Return the report as lines of text."""
        lines = [f"{self.nodes_before} nodes before, {self.nodes_after} after"]
        lines += [f"  {rule}: fired {n} times" for rule, n in self.fired.most_common()]
        lines += [
            f"  {rule}: refused {n} times, first at {self.refused_at[rule, why]}: {why}"
            for (rule, why), n in self.refused.most_common()
        ]
        return "\n".join(lines)
