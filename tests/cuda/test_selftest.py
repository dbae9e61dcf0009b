"""The test for a person with a GPU: on the host, and on the GPU where there is one."""

from __future__ import annotations

import pytest

from kn_cuda.backend import Backend
from kn_cuda.device import cuda_device, cuda_unavailable_reasons
from kn_cuda.evaluation import Evaluation
from kn_cuda.selftest import ITEMS, Item, checked, main
from kn_graph.errors import InternalError
from tests.cuda.run import host_backend, needs_compiler

IDS = list(ITEMS)


@pytest.fixture(scope="module")
def gpu(request: pytest.FixtureRequest) -> Backend:
    """The first GPU."""
    reasons = "; ".join(cuda_unavailable_reasons())
    if reasons and request.config.getoption("--require-device"):
        pytest.fail(f"--require-device: {reasons}")
    if reasons:
        pytest.skip(reasons)
    return cuda_device()


@pytest.mark.gpu
@pytest.mark.parametrize("item", ITEMS.values(), ids=IDS)
def test_a_gpu_computes_what_the_reference_does(item: Item, gpu: Backend) -> None:
    checked(item, gpu)


@needs_compiler
@pytest.mark.parametrize("item", ITEMS.values(), ids=IDS)
def test_items_hold_on_the_host(item: Item) -> None:
    checked(item, host_backend())


@needs_compiler
def test_a_device_that_does_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluation, "_carry_out", lambda self, call, step: None)
    with pytest.raises(InternalError, match="nothing was launched"):
        checked(ITEMS["softmax"], host_backend())


def test_no_gpu_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    if not cuda_unavailable_reasons():
        pytest.skip("there is a GPU")
    assert main([]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("no  device")
