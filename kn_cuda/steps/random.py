"""Random numbers: each launch is told which ones are next."""

from __future__ import annotations

from kn_cuda.axes import blocks_for
from kn_cuda.builder import KernelBuilder
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.types import compute_type, storage_type
from kn_graph.dim import ceildiv, size_prod
from kn_graph.dtype import DType
from kn_graph.ops.random import SIGNIFICANT_BITS, Random
from kn_plan.calls import Draw
from kn_plan.plan import Step

__all__ = ["random"]

BLOCK_WORDS = 4
"""Words that one number of the counter gives."""


def random(low: Lowering, step: Step, op: Random) -> Calls:
    """Draw, and apply the program of the step."""
    words = 2 if op.distribution == "normal" or op.dtype is DType.FLOAT64 else 1
    b = KernelBuilder("random", "random_numbers", low.threads)
    b.type("T", storage_type(op.dtype))
    b.type("Acc", compute_type(op.dtype))
    b.constant("NORMAL", op.distribution == "normal")
    b.constant("BITS", SIGNIFICANT_BITS[op.dtype])
    b.constant("WORDS", words)
    b.reads("draw", Draw(op.stream, op.key), "uint64_t")
    count = size_prod(step.shape)
    b.number("count", count)
    low.end(b, step)
    return [b.launch(blocks_for(ceildiv(count * words, BLOCK_WORDS), low.threads))]
