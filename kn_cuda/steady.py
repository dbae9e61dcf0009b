"""Plans of which the device does everything, with places for their results before they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kn_cuda.array import DeviceArray
from kn_cuda.evaluation import Evaluation
from kn_cuda.program import DeviceStep
from kn_graph.dtype import DType
from kn_plan.plan import Home

if TYPE_CHECKING:
    from kn_cuda.executor import CudaExecutor, Ready

__all__ = ["is_steady", "placed_outputs"]


def is_steady(ready: Ready) -> bool:
    """Return whether all is done by the device, with results in memory of their own."""
    plan, env = ready.loaded.skeleton.plan, ready.env
    stages = ready.loaded.skeleton.stages
    operands = list(plan.outputs.values())
    return (
        len(stages) == 1
        and all(isinstance(s, DeviceStep) for s in stages[0].segments)
        and len({o.buffer for o in operands}) == len(operands)
        and all(plan.buffers[o.buffer].home is Home.OUTPUT for o in operands)
        and all(o.layout.is_contiguous and not o.layout.at(env).offset for o in operands)
    )


def placed_outputs(executor: CudaExecutor, run: Evaluation) -> dict[str, DeviceArray]:
    """Give the outputs of a steady run their places, in one piece of memory."""
    plan = run.plan
    kinds: dict[str, tuple[DType, tuple[int, ...]]] = {}
    for name, operand in plan.outputs.items():
        dtype = plan.buffers[operand.buffer].dtype
        assert dtype is not None
        kinds[name] = dtype, run.sizes(operand.layout.sizes)
    made = executor.arrays(kinds)
    for name, operand in plan.outputs.items():
        run.place(operand.buffer, made[name].memory)
    return made
