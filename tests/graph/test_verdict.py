"""Verdicts on arrays: exact where they have to be, and what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kn_graph.compare import HISTOGRAM, Band, compare_arrays, compare_outputs
from kn_graph.compare.verdict import leaves

F32 = np.float32


def test_nan_and_infinities_are_compared_exactly() -> None:
    want = np.array([1, np.nan, np.inf, -np.inf], F32)
    tolerance = np.full(4, 1e9)
    assert compare_arrays("y", want.copy(), want, tolerance).ok
    for bad in ([1, 2, np.inf, -np.inf], [1, np.nan, 3e38, -np.inf], [1, np.nan, -np.inf, -np.inf],
                [np.nan, np.nan, np.inf, -np.inf], [np.inf, np.nan, np.inf, -np.inf]):  # fmt: skip
        verdict = compare_arrays("y", np.array(bad, F32), want, tolerance)
        assert not verdict.ok, bad
        assert verdict.outside == 1
        assert verdict.histogram[-1] == 1


def test_a_nan_never_hides_a_worse_element() -> None:
    want = np.zeros(3)
    verdict = compare_arrays("y", np.array([np.nan, 5.0, 0.0]), want, np.ones(3))
    assert verdict.outside == 2
    assert not compare_arrays("y", np.array([np.nan, 5.0, 0.0]), want, np.full(3, np.nan)).ok


def test_verdict_names_the_worst_element() -> None:
    want = np.array([[1.0, 2.0], [3.0, 4.0]], F32)
    got = want + np.array([[0, 1e-3], [0, -1e-2]], F32)
    verdict = compare_arrays("y", got, want, np.full((2, 2), 1e-3))
    assert verdict.worst is not None
    assert verdict.worst.index == (1, 1)
    assert verdict.outside == (np.abs(got.astype(float) - want) > 1e-3).sum()
    assert sum(verdict.histogram) == 4
    assert verdict.describe().splitlines()[0] == "y float32[2, 2]: differs"
    assert "worst [1, 1]: got 3.99" in verdict.describe()
    assert json.loads(json.dumps(verdict.as_dict()))["worst"]["index"] == [1, 1]


@pytest.mark.parametrize(
    ("got", "want", "why"),
    [
        (np.zeros(2, F32), np.zeros(2), "type: got float32[2]"),
        (np.zeros(2), np.zeros((2, 1)), "shape: got float64[2]"),
        (np.array([True]), np.array([False]), "differs"),
        (np.array([2**62 + 1]), np.array([2**62]), "differs"),
        (np.array(["a"], object), np.array(["b"], object), "differs"),
        (np.array([np.nan]), np.array([0.0]), "NaN differ"),
        (np.array([np.inf]), np.array([0.0]), "infinities differ"),
        (np.array([1 + 1j]), np.array([1 + 0j]), "differs"),
    ],
)
def test_reasons(got: np.ndarray, want: np.ndarray, why: str) -> None:
    verdict = compare_arrays("y", got, want)
    assert (verdict.ok, verdict.why) == (False, why)
    json.dumps(verdict.as_dict())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_scalars_and_empty_arrays(shape: tuple[int, ...]) -> None:
    verdict = compare_arrays("y", np.zeros(shape), np.zeros(shape))
    assert verdict.ok
    assert (sum(verdict.histogram), len(verdict.histogram)) == (verdict.elements, len(HISTOGRAM))
    assert not compare_arrays("y", np.ones(()), np.zeros(())).ok


def test_sequences_maps_and_nothing() -> None:
    want = {"s": [np.zeros(2), np.ones(1)], "m": {"a": 1.0}, "o": None, "t": "text"}
    assert [n for n, x in want.items() for n, _ in leaves(n, x)] == [
        "s[0]",
        "s[1]",
        "m['a']",
        "o",
        "t",
    ]
    assert compare_outputs(want, Band(want)).ok
    report = compare_outputs(
        {"s": [np.zeros(2)], "m": {"a": 2.0}, "o": np.zeros(1), "t": "text"}, Band(want)
    )
    assert [v.name for v in report.failed] == ["s[1]", "m['a']", "o"]
    assert report.verdicts[1].why == "missing"
    assert compare_outputs({**want, "u": np.ones(1)}, Band(want)).failed[0].why == "not expected"
