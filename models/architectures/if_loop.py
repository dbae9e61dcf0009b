"""Control flow: an If with a Loop in one branch, and a Loop with an If in its body.

Every body uses values and weights of the graphs around it. The second loop stops after `steps`
turns or when its running total reaches `limit`, so the length of `trace` is known only afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from models.architectures.sketch import Architecture, Array, Sketch, normal

__all__ = ["IF_LOOP"]

WIDTH = 8


def _loop_body(outer: Sketch, name: str) -> tuple[Sketch, str, str]:
    """Start the body of a loop; the body, its turn number and its condition."""
    b = outer.body(name)
    turn = b.input(f"{name}_turn", TensorProto.INT64, [])
    go_on = b.input(f"{name}_go_on", TensorProto.BOOL, [])
    return b, turn, go_on


def _power_loop(s: Sketch, x: str, weight: str) -> str:
    """Add a loop of three turns, each multiplying what is carried by an outer weight."""
    b, turn, go_on = _loop_body(s, "power")
    carried = b.float_input("power_in", "batch", WIDTH)
    product = b.node("MatMul", carried, weight)
    share = b.node("Cast", turn, to=TensorProto.FLOAT)
    y = b.node("Tanh", b.node("Add", product, b.node("Mul", x, share)))
    b.output(b.node("Identity", go_on), "power_go_on_out", TensorProto.BOOL, [])
    b.float_output(y, "power_out", "batch", WIDTH)
    return s.node("Loop", s.constant(3, np.int64), "", x, body=b.graph())


def _branches(s: Sketch, x: str, weight: str, threshold: str) -> str:
    """Add an If on the mean of `x`: a loop over it, or one product."""
    high = s.body("high")
    high.float_output(_power_loop(high, x, weight), "high_out", "batch", WIDTH)
    low = s.body("low")
    product = low.node("MatMul", x, low.random("weight", WIDTH, WIDTH, fan_in=WIDTH))
    low.float_output(low.node("Relu", product), "low_out", "batch", WIDTH)
    mean = s.node("ReduceMean", x, keepdims=0)
    chosen = s.node("Greater", mean, threshold)
    return s.node("If", chosen, then_branch=high.graph(), else_branch=low.graph())


def _alternate(b: Sketch, turn: str, value: str, x: str) -> str:
    """Add an If inside a loop body: even turns add the outermost input, odd turns halve."""
    even = b.body("even")
    even.float_output(even.node("Add", value, x), "even_out", "batch", WIDTH)
    odd = b.body("odd")
    half = odd.constant(0.5, np.float32)
    odd.float_output(odd.node("Mul", value, half), "odd_out", "batch", WIDTH)
    rest = b.node("Mod", turn, b.constant(2, np.int64))
    is_even = b.node("Equal", rest, b.constant(0, np.int64))
    return b.node("If", is_even, then_branch=even.graph(), else_branch=odd.graph())


def _trace_loop(s: Sketch, steps: str, limit: str, start: str, x: str, weight: str) -> list[str]:
    """Add the loop with two carried values, one scan output and a condition."""
    b, turn, _ = _loop_body(s, "trace")
    state = b.float_input("trace_state", "batch", WIDTH)
    total = b.float_input("trace_total")
    state = _alternate(b, turn, b.node("Tanh", b.node("MatMul", state, weight)), x)
    row = b.node("ReduceSum", state, b.ints(1), keepdims=0)
    step = b.node("ReduceMean", b.node("Abs", state), keepdims=0)
    total = b.node("Add", total, step)
    b.output(b.node("Less", total, limit), "trace_go_on_out", TensorProto.BOOL, [])
    b.float_output(state, "trace_state_out", "batch", WIDTH)
    b.float_output(total, "trace_total_out")
    b.float_output(row, "trace_row", "batch")
    carried = (s.constant(True, np.bool_), start, s.constant(0.0, np.float32))
    return s.nodes("Loop", steps, *carried, results=3, body=b.graph())


def _build() -> onnx.ModelProto:
    s = Sketch("if_loop", "If and Loop, nested, with captured values", opset=17, seed=108)
    x = s.float_input("x", "batch", WIDTH)
    threshold = s.float_input("threshold")
    steps = s.input("steps", TensorProto.INT64, [])
    limit = s.float_input("limit")
    weight = s.random("weight", WIDTH, WIDTH, fan_in=WIDTH)
    start = _branches(s, x, weight, threshold)
    state, total, trace = _trace_loop(s, steps, limit, start, x, weight)
    s.float_output(start, "start", "batch", WIDTH)
    s.float_output(state, "state", "batch", WIDTH)
    s.float_output(total, "total")
    s.float_output(trace, "trace", "turns", "batch")
    return s.model()


def _feeds(rng: np.random.Generator, dims: Mapping[str, int]) -> dict[str, Array]:
    """Draw inputs; the threshold falls on either side of the mean, the limit at any turn."""
    return {
        "x": normal(rng, dims["batch"], WIDTH),
        "threshold": normal(rng),
        "steps": np.array(rng.integers(2, 9), np.int64),
        "limit": np.array(rng.uniform(0.5, 4.0), np.float32),
    }


IF_LOOP = Architecture("if_loop", {"batch": 2}, _build, _feeds)
