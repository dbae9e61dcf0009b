"""The traps of `tests/onnx/traps`, on both devices, as given and optimized, fed and not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import kn_runtime
from kn_graph import errors
from tests.onnx.traps import TRAPS, Trap


def model(trap: Trap, *, fed: bool) -> onnx.ModelProto:
    """Return a trap as a model; its inputs but the first are weights unless they are fed."""
    head = f'<ir_version: 10, opset_import: ["" : {trap.opset}]> trap () => () '
    proto = onnx.parser.parse_model(f"{head}{{ {trap.body} }}")
    first = next(iter(trap.inputs))
    for name, array in trap.inputs.items():
        if fed or name == first:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            proto.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        else:
            proto.graph.initializer.append(numpy_helper.from_array(array, name))
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in outputs(trap))
    for name, shape in trap.value_info.items():
        info = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        proto.graph.value_info.append(info)
    return proto


def outputs(trap: Trap) -> dict[str, Any]:
    return {n: x for n, x in trap.outputs.items() if isinstance(x, np.ndarray)} or {"y": None}


def ways(trap: Trap) -> tuple[bool, ...]:
    """Return whether all inputs are fed: with one input that is the same model."""
    return (False, True) if trap.fed and len(trap.inputs) > 1 else (False,)


@pytest.mark.parametrize("optimize", [False, True], ids=["raw", "optimized"])
@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("trap", "fed"),
    [(t, fed) for t in TRAPS for fed in ways(t)],
    ids=lambda x: getattr(x, "name", x),
)
def test_traps(trap: Trap, fed: bool, device: str, optimize: bool) -> None:
    feeds = trap.inputs if fed else dict([next(iter(trap.inputs.items()))])
    error = next((n for n, x in trap.outputs.items() if isinstance(x, str)), None)
    if error is not None:
        with pytest.raises(getattr(errors, error), match=re.escape(trap.outputs[error])):
            kn_runtime.load(model(trap, fed=fed), device, optimize=optimize).eval(feeds)
        return
    got = kn_runtime.load(model(trap, fed=fed), device, optimize=optimize).eval(feeds)
    for name, expected in trap.outputs.items():
        assert (got[name].dtype, got[name].shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got[name], expected, rtol=1e-6, err_msg=name)
