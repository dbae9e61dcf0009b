"""All rules, in the order in which they are tried."""

from typing import Any

from kn_graph.optimizer.rule import Rule
from kn_graph.optimizer.rules.silu import Silu

__all__ = ["RULES"]

RULES: tuple[Rule[Any], ...] = (Silu(),)
