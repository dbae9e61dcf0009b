"""Requirements of sizes are looked at once for each set of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest

from kn_graph.dim import Symbol, symbol
from kn_graph.dim_facts import Constraint, Constraints
from kn_graph.errors import ExecutionError
from kn_plan import required as module
from kn_plan.repeat import Repeat
from kn_plan.required import Required

N, K = symbol("n"), symbol("k")
SN: Any = N.as_symbol
SK: Any = K.as_symbol


def numbers(n: int, k: int | None = None) -> Mapping[Symbol, int]:
    return {SN: n} if k is None else {SN: n, SK: k}


def constraints() -> list[Constraint]:
    found = Constraints()
    found.require_ge(N, 2 * K, "room for pairs")
    return list(found)


def test_repeats_that_do_not_hold_are_an_error_each_time() -> None:
    rules = Required([], [Repeat("add", (K, 3), (N, 3))])
    rules.check_repeats(numbers(9))  # k shows later
    for k in (1, 9):
        rules.check_repeats(numbers(9, k))
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"node add .*cannot broadcast \[4, 3\]"):
            rules.check_repeats(numbers(9, 4))


def test_constraints_that_do_not_hold_are_an_error_each_time() -> None:
    rules, pending = Required(constraints(), []), constraints()
    assert rules.check_constraints(pending, numbers(9), "node a: ") == pending
    assert rules.check_constraints(pending, numbers(9, 4), "node a: ") == []
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"node a: .* \(k=5, n=9\)"):
            rules.check_constraints(pending, numbers(9, 5), "node a: ")


def test_what_held_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Mock(return_value=[])
    monkeypatch.setattr(module, "check_constraints", look)
    rules = Required(constraints(), [])
    for k in (1, 2, 1, 2, 1):
        rules.check_constraints(constraints(), numbers(9, k), "")
    assert look.call_count == 2
