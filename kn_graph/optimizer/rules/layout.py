"""Rules of the layout family."""

from typing import Any

from kn_graph.optimizer.rule import Rule

__all__ = ["RULES"]

RULES: tuple[Rule[Any], ...] = ()
