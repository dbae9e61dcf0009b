"""Models as exporters write them, from a line of text an operator.

```python
exported("e = Erf(Div(x, 1.4142135))\\ny = Mul(Mul(x, Add(e, 1.0)), 0.5)")
```

Calls are ONNX nodes, keywords their attributes; numbers are initializers of x's element type, lists
are int64 initializers. `y` is the output.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from kn_graph import DType, Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.optimizer import OptimizerSettings
from kn_graph.optimizer.rules import RULES
from tests.small_models import info, model

__all__ = ["drawn", "exported", "only", "special"]

PACKAGE = "kn_graph.optimizer.rules"

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 1e-5, -1e-5, 1e30, -1e30, 60, -60)


class _Text:
    """Nodes and initializers of a text."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, Any] = {}

    def statement(self, line: ast.stmt) -> None:
        assert isinstance(line, ast.Assign)
        (target,) = line.targets
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        self.call(line.value, [n.id for n in names])  # type: ignore[attr-defined]

    def call(self, call: ast.expr, outputs: list[str]) -> None:
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        inputs = [self.value(a) for a in call.args]
        attributes = {k.arg or "": ast.literal_eval(k.value) for k in call.keywords}
        name = f"/{call.func.id}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(call.func.id, inputs, outputs, name, **attributes))

    def value(self, e: ast.expr) -> str:
        if isinstance(e, ast.Name):
            return e.id
        if isinstance(e, ast.Call):
            name = f"t{len(self.nodes)}_{len(self.weights)}_{e.col_offset}"
            self.call(e, [name])
            return name
        number = ast.literal_eval(e)
        if number is None:
            return ""
        dtype = np.int64 if isinstance(number, list) else self.dtype.numpy
        name = f"c{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(np.array(number, dtype), name)
        return name


def exported(
    text: str,
    inputs: Mapping[str, tuple[str, Sequence[Any]]] | None = None,
    *,
    dtype: str = "float32",
    shape: Sequence[Any] = ("n", 4),
    weights: Mapping[str, Any] | None = None,
    opset: int = 17,
) -> Graph:
    """Load the model of a text; its input is x unless inputs are given."""
    kind = DType.parse(dtype)
    body = _Text(kind)
    for line in ast.parse(text).body:
        body.statement(line)
    given = inputs or {"x": (dtype, shape)}
    infos = [info(n, s, DType.parse(d).onnx_code) for n, (d, s) in given.items()]
    arrays = {n: np.asarray(w).astype(kind.numpy) for n, w in (weights or {}).items()}
    proto = model(body.nodes, infos, weights={**body.weights, **arrays}, opset=opset)
    return load_graph_from_onnx_bytes(proto.SerializeToString())


def only(*modules: str) -> OptimizerSettings:
    """Return settings that leave nothing but the rules of some modules, and folding."""
    allowed = {r.name for m in ("fold", *modules) for r in import_module(f"{PACKAGE}.{m}").RULES}
    return OptimizerSettings(disabled=frozenset({r.name for r in RULES} - allowed))


def special(dtype: str, columns: int = 4) -> np.ndarray:
    """Return rows of NaN, infinities, zeros, denormal, tiny and large numbers."""
    numbers = np.array(SPECIAL)
    padded = np.resize(numbers, (-(-len(numbers) // columns) * columns,))
    with np.errstate(all="ignore"):
        return padded.reshape(-1, columns).astype(DType.parse(dtype).numpy)


def drawn(dtype: str, shape: Sequence[int], seed: int = 0, scale: float = 3.0) -> np.ndarray:
    """Return normal numbers."""
    x = np.random.default_rng(seed).standard_normal(shape) * scale
    return x.astype(DType.parse(dtype).numpy)
