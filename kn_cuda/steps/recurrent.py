"""Recurrent layers: a product with all inputs, then step after step.

The rule, for each layer:

- Few weights: one launch, in which a block steps through a sequence in one direction. States are in
  shared memory; all weights are read again in each step, so that takes as long as one
  multiprocessor needs for them.
- All else, and states of several sequences that are rounded together: a few launches a step, for
  all sequences. A library multiplies the states with the weights, on all multiprocessors.
"""

from __future__ import annotations

from dataclasses import replace

from kn_cuda.calls import Rounds
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.recurrent_kernel import Layer
from kn_cuda.rows import at_most
from kn_cuda.steps.matmul import product
from kn_graph.dim import Size
from kn_graph.dtype import DType
from kn_graph.ops.recurrent import Recurrent
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["recurrent"]

MOST_WEIGHTS = 512 << 10
"""Bytes of a direction's weights that a block reads in about the time of two launches; assumed.

States and gates of such a layer take a third of the shared memory of a block at most.
"""


def recurrent(low: Lowering, step: Step, op: Recurrent) -> Calls:
    """Multiply all steps with the input weights, then step through the sequences."""
    layer = Layer(low, step, op)
    if layer.hidden == 0:
        return []
    calls: Calls = []
    inputs = _inputs(low, step, layer.dtype, calls)
    alone: Size = at_most(layer.batch, 1) if op.quantize_hidden else 1
    if not _suits_a_block(layer):
        alone = 0
    if alone != 0:
        calls.append(replace(layer.in_blocks(inputs), guard=alone))
    if alone != 1:
        calls += [replace(call, guard=1 - alone) for call in _in_rounds(layer, inputs)]
    return calls


def _suits_a_block(layer: Layer) -> bool:
    weights = layer.gates * layer.hidden**2 * layer.low.itemsize(layer.r)
    return weights <= MOST_WEIGHTS


def _inputs(low: Lowering, step: Step, dtype: DType, calls: Calls) -> Operand:
    """Return x @ w^T [steps, batch, directions * rows]; what computes it is appended."""
    x, w, *_ = step.reads
    (steps, batch, features), (directions, rows, _) = x.layout.sizes, w.layout.sizes
    matrix = _matrix(low, x, steps * batch, features, calls)
    weights = _matrix(low, w, directions * rows, features, calls)
    turned = Operand(weights.buffer, weights.layout.permute((1, 0)))
    out = low.temporary(dtype, (steps * batch, directions * rows))
    calls += product(low, matrix, turned, out)
    return out


def _matrix(low: Lowering, x: Operand, rows: Size, columns: Size, calls: Calls) -> Operand:
    """Return an operand of three axes as a matrix, copied where the first two are not one."""
    layout: StridedLayout = x.layout
    (outer, inner, _), (outer_step, step, last) = layout.sizes, layout.strides
    if outer == 1 or outer_step == inner * step:
        return Operand(x.buffer, StridedLayout((rows, columns), (step, last), layout.offset))
    if inner == 1:
        return Operand(x.buffer, StridedLayout((rows, columns), (outer_step, last), layout.offset))
    made = low.temporary(low.dtype(x), layout.sizes)
    calls.append(low.copy(made, x))
    return Operand(made.buffer, StridedLayout.contiguous((rows, columns)))


# ---- a few launches a step ----------------------------------------------------------------------


def _in_rounds(layer: Layer, inputs: Operand) -> Calls:
    """Return what goes on with all sequences at once.

    States are [direction, row, unit] in memory, as wide as what is computed with. They begin as
    what is given, and are converted to the results behind the last step.
    """
    low, step, dtype = layer.low, layer.step, layer.dtype
    directions, rows, _ = layer.r.layout.sizes
    shape = (directions, layer.batch, layer.hidden)
    begins = [layer.given.get(name) for name in ("initial_h", "initial_c")]
    states = [low.temporary(dtype, shape) for _ in step.writes[1:]]
    calls: Calls = []
    for state, begin in zip(states, begins, strict=False):
        calls += low.filled(state, 0.0) if begin is None else low.converted(state, begin)
    weights = layer.r
    if low.dtype(weights) is not dtype:
        weights = low.temporary(dtype, layer.r.layout.sizes)
        calls += low.converted(weights, layer.r)
    products = low.temporary(dtype, (directions, layer.batch, rows))
    steps = _step(layer, inputs, states, weights, products)
    rounds = Rounds(layer.x.layout.sizes[0])
    calls += [replace(call, rounds=rounds) for call in steps]
    for result, state in zip(step.writes[1:], states, strict=True):
        calls += low.converted(result, state)
    return calls


def _step(
    layer: Layer, inputs: Operand, states: list[Operand], weights: Operand, products: Operand
) -> Calls:
    """Return the calls of a step."""
    state, calls = states[0], []
    split = layer.gates * layer.hidden
    if layer.op.kind == "gru" and not layer.op.linear_before_reset:
        split = 2 * layer.hidden  # the last gate multiplies what is reset
    calls += _multiplied(layer, state, weights, products, 0, split)
    if split < layer.gates * layer.hidden:
        reset = layer.low.temporary(layer.dtype, state.layout.sizes)
        calls.append(layer.reset(inputs, products, state, reset))
        end = layer.gates * layer.hidden
        calls += _multiplied(layer, reset, weights, products, split, end)
    return [*calls, layer.cell(inputs, products, states)]


def _multiplied(
    layer: Layer, state: Operand, weights: Operand, products: Operand, first: int, end: int
) -> Calls:
    """Return the product of states with rows of the weights; states are rounded first, or not."""
    calls: Calls = []
    if layer.op.quantize_hidden:
        rounded = layer.low.temporary(layer.dtype, state.layout.sizes)
        calls.append(layer.rounded(state, rounded))
        state = rounded
    rows = Operand(weights.buffer, weights.layout.slice(1, first, end - first))
    turned = Operand(weights.buffer, rows.layout.permute((0, 2, 1)))
    out = Operand(products.buffer, products.layout.slice(2, first, end - first))
    return [*calls, *product(layer.low, state, turned, out)]
