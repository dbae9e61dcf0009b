"""`kn_runtime.load`: sources, sizes, devices."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kn_runtime
from kn_graph.errors import (
    DeviceUnavailableError,
    KnError,
    KnWarning,
    MalformedModelError,
    SymbolError,
    UsageError,
)
from kn_runtime import Device
from tests.small_models import info, node
from tests.small_models import model as small

PROTO = small([node("Neg", "x", "y")], [info("x", ["batch", "seq"])])


@pytest.mark.parametrize("kind", ["path", "text", "bytes", "file", "proto"])
def test_sources(kind: str, tmp_path: Path) -> None:
    data = PROTO.SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    sources = {
        "path": path, "text": str(path), "bytes": data, "file": io.BytesIO(data), "proto": PROTO
    }  # fmt: skip
    model = kn_runtime.load(sources[kind])
    assert model.eval([np.ones((1, 2), np.float32)])["y"].tolist() == [[-1, -1]]


@pytest.mark.parametrize("device", ["reference", "cpu", Device.reference()])
def test_devices_by_name_or_object(device: Any) -> None:
    assert str(kn_runtime.load(PROTO, device).device) == str(device)
    assert kn_runtime.load(PROTO).device == Device.best()


def test_a_device_that_cannot_be_used_is_refused_before_the_file_is_read() -> None:
    with pytest.raises(DeviceUnavailableError):
        kn_runtime.load("absent.onnx", "cuda")
    with pytest.raises(UsageError):
        kn_runtime.load("absent.onnx", "tpu")


def test_dims_pin_sizes() -> None:
    model = kn_runtime.load(PROTO, dims={"batch": 2})
    assert list(model.graph.symbols) == ["seq"]
    with pytest.raises(KnError, match="axis 0 has size 3, not 2"):
        model.eval([np.ones((3, 1), np.float32)])


@pytest.mark.parametrize(
    ("dims", "says"),
    [
        ({"length": 3}, "no symbolic size 'length'; they have 'batch', 'seq'"),
        ({"seq": -3}, "'seq' cannot be -3"),
    ],
)
def test_dims_that_change_nothing_are_refused(dims: dict[str, int], says: str) -> None:
    with pytest.raises(SymbolError, match=says):
        kn_runtime.load(PROTO, dims=dims)


def test_input_shapes_replace_those_declared() -> None:
    model = kn_runtime.load(PROTO, input_shapes={"x": [4, None]})
    assert str(model.graph.inputs[0].type) == "float32[4, x_1]"
    with pytest.raises(SymbolError, match="'z'; the inputs are 'x'"):
        kn_runtime.load(PROTO, input_shapes={"z": [1]})


def test_sizes_that_are_expressions() -> None:
    proto = small([node("Neg", "x", "y")], [info("x", ["2*n", "n//2 + 1"])])
    model = kn_runtime.load(proto)
    assert list(model.graph.symbols) == ["n"]
    assert model.eval([np.ones((6, 2), np.float32)])["y"].shape == (6, 2)
    with pytest.raises(SymbolError, match="n = 3"):
        model.eval([np.ones((6, 3), np.float32)])
    fixed = kn_runtime.load(proto, dims={"n": 5})
    assert str(fixed.graph.inputs[0].type) == "float32[10, 3]"


@pytest.mark.parametrize("text", ["n - 5", "8 // (n-2)"])
def test_numbers_that_leave_no_size_are_refused(text: str) -> None:
    proto = small([node("Neg", "x", "y")], [info("x", [text])])
    with pytest.raises(SymbolError, match="leave none for"):
        kn_runtime.load(proto, dims={"n": 2})


@pytest.mark.parametrize("text", ["a b", "n//", "(", "n/0", "50%", "?!"])
def test_any_text_may_name_a_size(text: str) -> None:
    model = kn_runtime.load(small([node("Neg", "x", "y")], [info("x", [text, text])]))
    assert list(model.graph.symbols) == [text]
    assert model.eval([np.ones((2, 2), np.float32)])["y"].shape == (2, 2)


def test_a_newer_opset_is_a_warning_once_a_load() -> None:
    proto = small([node("Neg", "x", "y")], [info("x", ["n"])], opset=999)
    with pytest.warns(KnWarning, match="opset 999 of ai.onnx is newer than") as caught:
        model = kn_runtime.load(proto)
    assert len(caught) == 1
    assert model.eval([np.ones(0, np.float32)])["y"].shape == (0,)  # loads a variant, silently


def test_errors_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"broken")
    with pytest.raises(MalformedModelError, match=r"broken\.onnx"):
        kn_runtime.load(tmp_path / "broken.onnx")


def test_importing_is_light() -> None:
    code = "import kn_runtime, sys; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"onnx", "rich", "cupy", "PIL", "argparse"} & set(out.stdout.split())
