"""Writers of random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kn_graph.dtype import DType
from kn_graph.onnx.write.registry import refuse, writer
from kn_graph.ops.random import Random

if TYPE_CHECKING:
    from kn_graph.onnx.write.node import NodeWriter

__all__: list[str] = []

OPERATORS = {"uniform": "RandomUniform", "normal": "RandomNormal"}


@writer(Random)
def random(ctx: NodeWriter, op: Random) -> str:
    """RandomUniform or RandomNormal, of a tensor's shape where sizes are symbolic."""
    operator = OPERATORS[op.distribution]
    seed = None
    if op.key is not None:
        if op.key >= 1 << 32:
            refuse(f"the seed {op.key} is no float32")
        seed = float(np.uint32(op.key).view(np.float32))
    attributes = {"dtype": op.dtype, "seed": seed}
    sizes = [s for s in op.shape if isinstance(s, int)]
    if len(sizes) == len(op.shape) and sizes:
        out = ctx.scope.append(operator, [], 1, "", {"shape": sizes, **attributes})[0]
    else:
        like = ctx.emit("Expand", ctx.scalar(0, DType.FLOAT32), ctx.sizes(op.shape))
        out = ctx.scope.append(f"{operator}Like", [like], 1, "", attributes)[0]
    ctx.scope.model.dtypes[out] = op.dtype
    return out
