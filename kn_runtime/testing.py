"""Checks for the tests of whoever uses this library."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kn_graph.errors import DeviceUnavailableError
from kn_runtime.device import Device

if TYPE_CHECKING:
    from kn_graph.compare import CompareReport
    from kn_graph.graph import Graph

__all__ = ["REQUIRED", "assert_devices_agree"]

log = logging.getLogger(__name__)

REQUIRED = "KN_REQUIRE_DEVICE"
"""Environment variable: names of devices, such as `cpu,cuda`, whose absence is a failure."""


def assert_devices_agree(
    graph: Graph,
    inputs: Mapping[str, Any] | Sequence[Any],
    devices: Sequence[str] = ("reference", "cpu", "cuda"),
    optimize: Sequence[bool] = (False, True),
    dims: Mapping[str, int] | None = None,
    *,
    seed: int = 0,
) -> dict[str, CompareReport]:
    """Check that devices give what the reference gives, with and without the optimizer.

    Results are compared in the model band (see `kn_graph.compare.model_band`) with the reference
    that runs the graph exactly as given.

    A device that is absent is skipped with its reason: in pytest by `pytest.skip`, after all the
    others were compared and agree, so this is best the last line of a test; elsewhere by a log
    record. With KN_REQUIRE_DEVICE=cuda (or a list: cpu,cuda) in the environment it is a failure.

    Args:
        graph: what to run.
        inputs: arrays by name, or a list in the graph's order.
        devices: names of devices.
        optimize: whether the optimizer is used; both by default.
        dims: numbers of symbolic sizes that no input shows.
        seed: of random operations.

    Returns:
        {"cpu", "cpu optimized" and so on: report}.

    Raises:
        AssertionError: results differ, or a required device is absent; the text says all.
    """
    from kn_graph.compare import compare_outputs, model_band

    graph.seal()
    band = model_band(graph, inputs, dims, seed=seed)
    reports: dict[str, CompareReport] = {}
    absent: dict[str, str] = {}
    for name in devices:
        try:
            device = Device.parse(name)
        except DeviceUnavailableError as error:
            absent[name] = str(error)
            continue
        for optimized in optimize:
            outputs = _run(device, graph, inputs, dims, seed, optimized)
            label = f"{device} optimized" if optimized else str(device)
            reports[label] = compare_outputs(outputs, band)
    _fail(graph, {n: r for n, r in reports.items() if not r.ok}, absent)
    if absent:
        _skip(absent, list(reports))
    return reports


def _run(
    device: Device,
    graph: Graph,
    inputs: Mapping[str, Any] | Sequence[Any],
    dims: Mapping[str, int] | None,
    seed: int,
    optimized: bool,
) -> dict[str, Any]:
    if optimized and device.kind == "reference":  # which never optimizes by itself
        from kn_graph.optimizer import optimize_graph

        graph = optimize_graph(graph)
    known = {n: k for n, k in (dims or {}).items() if n in graph.symbols}
    with device.prepare(graph, known, optimize=optimized) as prepared:
        return prepared.eval(inputs, seed=seed)


def _fail(graph: Graph, wrong: Mapping[str, CompareReport], absent: Mapping[str, str]) -> None:
    required = [n.strip() for n in os.environ.get(REQUIRED, "").split(",") if n.strip()]
    texts = [f"{name}:\n{report.describe()}" for name, report in wrong.items()]
    for name, reason in absent.items():
        if name in required or name.partition(":")[0] in required:
            texts.append(f"{name} is required by {REQUIRED}: {reason}")
    if texts:
        head = f"graph {graph.name!r} does not agree with the reference on:"
        raise AssertionError("\n".join([head, *texts]))


def _skip(absent: Mapping[str, str], compared: Sequence[str]) -> None:
    reason = "; ".join(f"{name} was not compared: {why}" for name, why in absent.items())
    if compared:
        reason += f" Compared: {', '.join(compared)}."
    pytest = sys.modules.get("pytest")
    if pytest is not None and "PYTEST_CURRENT_TEST" in os.environ:
        pytest.skip(reason)
    log.warning("%s", reason)
