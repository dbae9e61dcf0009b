"""Operations that no device has a kernel for, as others that they all have."""

from kn_plan.expand.graph import EXPANSIONS, expand_graph

__all__ = ["EXPANSIONS", "expand_graph"]
