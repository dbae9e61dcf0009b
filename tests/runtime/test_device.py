"""Devices: names, reasons, errors, `prepare`."""

from __future__ import annotations

import numpy as np
import pytest

import kn_runtime
from kn_graph import Graph, KnError
from kn_graph.errors import DeviceUnavailableError, SymbolError, UsageError
from kn_runtime import Device, PrepareOptions


def doubled() -> Graph:
    graph = Graph("doubled")
    x = graph.input("x", "float32", ["n"])
    graph.output("y", x + x)
    return graph


@pytest.mark.parametrize("name", ["best", "reference", "cpu"])
def test_names_are_understood(name: str) -> None:
    device = Device.parse(name)
    assert Device.parse(str(device)) == device
    assert device.reason
    assert "asked" not in device.reason


def test_makers_agree_with_names() -> None:
    assert Device.parse("reference") == Device.reference()
    assert Device.parse("cpu") == Device.cpu()
    assert Device.parse("best") == Device.best()


def test_devices_are_equal_whatever_led_to_them() -> None:
    assert Device("cpu", 0, "because") == Device("cpu", 0, "why not")
    assert len({Device.cpu(), Device("cpu", 0, "other"), Device.reference()}) == 2


def test_the_best_device_comes_first_and_all_can_be_used() -> None:
    found = Device.available()
    assert found[0] == Device.best()
    assert Device.reference() in found
    for device in found:
        outputs = device.prepare(doubled()).eval([np.ones(2, np.float32)])
        np.testing.assert_array_equal(outputs["y"], [2, 2])


@pytest.mark.parametrize(
    "name", ["", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:1.5", "cpu:0", "cuda:²"]
)
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected best, reference, cpu, cuda or cuda:N"):
        Device.parse(name)


@pytest.mark.parametrize("index", [0, 7])
def test_an_absent_gpu_says_what_was_tried(index: int) -> None:
    if any(d.kind == "cuda" for d in Device.available()):
        pytest.skip("there is a GPU")
    for ask in (lambda: Device.cuda(index), lambda: Device.parse(f"cuda:{index}")):
        with pytest.raises(DeviceUnavailableError) as caught:
            ask()
        assert f"cuda:{index}" in str(caught.value)
        assert caught.value.reasons
        assert all(reason in str(caught.value) for reason in caught.value.reasons)


def test_preparing_seals_the_graph() -> None:
    graph = doubled()
    Device.cpu().prepare(graph)
    assert graph.sealed
    with pytest.raises(KnError, match="sealed"):
        graph.output("z", graph.inputs[0])


def test_without_optimizing_the_graph_runs_as_given() -> None:
    graph = doubled()
    assert Device.cpu().prepare(graph, optimize=False).graph is graph
    assert Device.reference().prepare(graph, optimize=True).graph is graph


def test_optimizing_changes_no_result() -> None:
    x = np.arange(4, dtype=np.float32)
    for optimize in (False, True):
        prepared = Device.cpu().prepare(doubled(), optimize=optimize)
        np.testing.assert_array_equal(prepared.eval({"x": x})["y"], 2 * x)


def test_dims_are_checked_when_preparing() -> None:
    with pytest.raises(SymbolError, match="no symbolic size 'm'; it has 'n'"):
        Device.cpu().prepare(doubled(), {"m": 3})
    with pytest.raises(SymbolError, match="'n' cannot be -1"):
        Device.cpu().prepare(doubled(), {"n": -1})


def test_dims_hold_for_every_call() -> None:
    prepared = Device.cpu().prepare(doubled(), dims={"n": 3})
    assert prepared.eval([np.ones(3, np.float32)])["y"].shape == (3,)
    with pytest.raises(SymbolError, match="size 'n' is 3 by dims, but 4 by axis 0 of input 'x'"):
        prepared.eval([np.ones(4, np.float32)])


def test_options_are_kept() -> None:
    options = PrepareOptions(allow_host=True)
    assert Device.cpu().prepare(doubled(), options=options).options == options


def test_the_package_names_its_version() -> None:
    assert kn_runtime.__version__.count(".") == 2
