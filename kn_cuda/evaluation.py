"""One run of a plan on a device, stage after stage."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_cuda.array import DeviceArray
from kn_cuda.backend import VECTOR_BYTES, DeviceCall, Memory
from kn_cuda.bound import BoundCall, BoundLaunch, BoundStage
from kn_cuda.handed import handed_on
from kn_cuda.program import DeviceStep
from kn_graph.dim import evaluate
from kn_graph.dtype import DType
from kn_graph.errors import KnError
from kn_graph.graph import Graph
from kn_graph.random_bits import RandomStreams
from kn_graph.reference import owned
from kn_plan.calls import ControlStep, HostStep
from kn_plan.plan import Home, Operand, Step
from kn_plan.run import PlanRun

if TYPE_CHECKING:
    from kn_cuda.executor import CudaExecutor, Ready

__all__ = ["Evaluation"]

Array = np.ndarray[Any, Any]


class Evaluation(PlanRun):
    """One run of a plan."""

    def __init__(self, executor: CudaExecutor, ready: Ready, streams: RandomStreams) -> None:
        loaded, skeleton = ready.loaded, ready.loaded.skeleton
        super().__init__(skeleton.plan, ready.env, loaded.objects, ready.pending, streams)
        self.executor, self.backend, self.proof = executor, executor.backend, executor.proof
        self.ready, self.skeleton = ready, skeleton
        self.addresses = np.zeros(self.skeleton.addresses, np.int64)
        self.addresses[: len(loaded.addresses)] = loaded.addresses
        self.memory: dict[int, Memory] = {}  # of inputs and results
        self._returned: Container[int] = ()  # results of bodies that stay on the device

    def outputs(self, inputs: Sequence[Any], stay: Container[int] = ()) -> dict[str, Any]:
        """Run all stages and return the results by name.

        Args:
            inputs: arrays of the host or of the device.
            stay: numbers of the outputs that stay on the device; others come to the host.
        """
        self.take(inputs)
        blocks: list[Memory] = []
        try:
            for index in range(len(self.skeleton.stages)):
                if index:  # sizes are known that were not when it began
                    self.plan.required.check_repeats(self.env)
                bound = self._bound(index)
                block = self.executor.blocks.take(bound.memory.nbytes)
                blocks.append(block)
                self._stage(bound, block)
            return {
                name: self._resident(o) if i in stay else self._result(o)
                for i, (name, o) in enumerate(self.plan.outputs.items())
            }
        finally:
            for block in blocks:
                self.executor.blocks.give(block)

    def take(self, inputs: Sequence[Any]) -> None:
        """Note where inputs are; those of the host are uploaded."""
        for number, x in zip(self.plan.inputs, inputs, strict=True):
            if self.plan.buffers[number].dtype is None:
                self.objects[number] = x
            elif isinstance(x, DeviceArray):
                self.place(number, x.memory)
            else:
                self._upload(number, np.ascontiguousarray(x))

    def _bound(self, index: int) -> BoundStage:
        """Return a stage for the numbers known so far; the first one is the same in all runs."""
        found = self.ready.first if index == 0 else None
        return found or self.executor.stages.at(self.skeleton, index, self.env)

    def _stage(self, bound: BoundStage, block: Memory) -> None:
        """Carry a stage out, and look at what its kernels tell."""
        self.enqueue(bound, block)
        places = bound.memory
        if places.statuses:
            told = self._download(block.address + places.status, places.status_bytes)
            places.check_status(told, self.env)

    def enqueue(self, bound: BoundStage, block: Memory) -> None:
        """Have the device carry a stage out, in a block of memory."""
        self.lay_out(bound, block)
        for place, memory in bound.tables:
            self.addresses[place] = memory.address
        self.draw(bound, block)
        places = bound.memory
        if places.statuses:
            told = block.address + places.status
            self._do(partial(self.backend.zero, told, places.status_bytes))
        calls = iter(bound.calls)
        for segment in bound.stage.segments:
            match segment:
                case DeviceStep(step):
                    self._place_results(step)
                    self._device(step, next(calls))
                case HostStep(step):
                    proof = self.proof
                    counts = proof.read_backs if segment.reads_sizes else proof.host_steps
                    counts[step.kind] += 1
                    self._host(step)
                case ControlStep(step):
                    self.proof.control_steps[step.kind] += 1
                    self._host(step)

    def draw(self, bound: BoundStage, block: Memory) -> None:
        """Say which random numbers a stage takes, in each run anew."""
        if bound.memory.draws:
            self._write(block.address + bound.memory.draw, bound.memory.drawn(self.streams))

    def lay_out(self, bound: BoundStage, block: Memory) -> None:
        """Note where the buffers of a stage lie in a block."""
        self.addresses[bound.stage.in_block] = bound.block_offsets + block.address

    def _device(self, step: Step, calls: Sequence[BoundCall]) -> None:
        """Have the device carry a step out."""
        for call in calls:
            self._carry_out(call, step)

    def _do(self, call: DeviceCall) -> object:
        """Have the device do something now."""
        return call()

    def _carry_out(self, call: BoundCall, step: Step) -> None:
        """Have the device do something: all that it does passes here, and is counted."""
        pointers = self.addresses[call.places] + call.offsets
        made: DeviceCall
        if isinstance(call, BoundLaunch):
            where = (call.kernel, call.grid, call.block, call.shared)
            made = partial(self.backend.launch, *where, pointers, call.numbers)
        else:
            made = partial(self.backend.library, call.request, pointers, call.numbers)
        try:
            launched = self._do(made)
        except KnError as error:
            error.add_context(f"node {step.label} ({step.kind})")
            raise
        count = launched if isinstance(launched, int) else 1
        self.proof.launches[step.kind] += count
        self.proof.kernels[call.title] += count

    # ---- memory -----------------------------------------------------------------------------

    def _upload(self, number: int, array: Array) -> None:
        """Bring what the caller gives to the device."""
        memory = self.backend.allocate(array.nbytes)
        self._write(memory.address, array)
        self.place(number, memory)

    def place(self, number: int, memory: Memory) -> None:
        """Note where a buffer lies."""
        self.memory[number] = memory
        self.addresses[self.skeleton.address_of_buffer(number)] = memory.address

    def _write(self, address: int, array: Array) -> None:
        if array.nbytes:
            self.backend.write(address, array)
        self.proof.uploads += array.nbytes

    def _download(self, address: int, nbytes: int) -> Array:
        self.proof.downloads += nbytes
        return self.backend.read(address, nbytes) if nbytes else np.empty(0, np.uint8)

    def _place_results(self, step: Step) -> None:
        """Allocate what a step writes, where it is no part of a block."""
        for operand in step.writes:
            self._address(operand.buffer)

    def _address(self, number: int) -> int:
        """Return where a buffer begins; results get memory when they are first asked for."""
        place = self.skeleton.address_of_buffer(number)
        if not self.addresses[place]:
            b = self.plan.buffers[number]
            nbytes = evaluate(b.nbytes, self.env)
            constant = self.plan.constants.get(number)
            if constant is not None:  # only the host reads it as it is
                self._upload(number, np.ascontiguousarray(constant))
                return int(self.addresses[place])
            self.place(number, self.backend.allocate(nbytes))
        return int(self.addresses[place])

    def _elements(self, operand: Operand) -> Array:
        """Return a copy of an operand in host memory."""
        b = self.plan.buffers[operand.buffer]
        assert b.dtype is not None
        layout = operand.layout.at(self.env)
        if 0 in layout.sizes:
            return np.empty(layout.sizes, b.dtype.numpy)
        constant = self.plan.constants.get(operand.buffer)
        if constant is not None:
            return layout.of(np.ascontiguousarray(constant).reshape(-1))
        span: Any = layout.span
        (low, high), size = span, b.dtype.itemsize
        address = self._address(operand.buffer) + low * size
        flat = self._download(address, (high - low + 1) * size).view(b.dtype.numpy)
        return layout.of(flat, low)

    def _result(self, operand: Operand) -> Any:
        if operand.buffer in self.objects:
            return owned(self.objects[operand.buffer])
        return np.array(self._elements(operand), order="C")

    def _lying(self, operand: Operand) -> DeviceArray | None:
        """Return an operand where it lies; None where it is no dense array on the device."""
        dtype = self.plan.buffers[operand.buffer].dtype
        if dtype is None:
            return None
        layout: Any = operand.layout.at(self.env)
        address = self._address(operand.buffer) + layout.offset * dtype.itemsize
        if not layout.is_contiguous or address % VECTOR_BYTES:
            return None
        owner = self.memory.get(operand.buffer)  # blocks and constants outlive all evaluations
        memory = Memory(address, layout.numel * dtype.itemsize, owner)
        return DeviceArray(memory, dtype, layout.sizes, self.backend)

    def _resident(self, operand: Operand) -> Any:
        """Return a result that stays on the device, in memory that nobody else has."""
        if operand.buffer in self.objects:
            return owned(self.objects[operand.buffer])
        lying = self._lying(operand)
        if lying is None:
            return self._brought(self._read(operand))
        home = self.plan.buffers[operand.buffer].home
        if home in (Home.OUTPUT, Home.LATE) and operand.buffer in self.memory:
            del self.memory[operand.buffer]  # another output on the same buffer gets a copy
            return lying
        memory = self.backend.allocate(lying.nbytes)
        self.backend.copy(memory.address, lying.memory.address, lying.nbytes)
        return DeviceArray(memory, lying.dtype, lying.shape, self.backend)

    def _brought(self, x: Array) -> DeviceArray:
        """Bring an array of the host to the device."""
        memory = self.backend.allocate(x.nbytes)
        self._write(memory.address, np.ascontiguousarray(x))
        return DeviceArray(memory, DType.from_numpy(x.dtype), x.shape, self.backend)

    # ---- steps that the host computes -------------------------------------------------------

    def _operands(self, step: Step) -> list[Any]:
        """Return what the operation of a step reads; what it only hands on stays where it is."""
        handed = handed_on(step.op)
        self._returned = handed.results
        lying = [self._lying(o) if i in handed.operands else None for i, o in enumerate(step.reads)]
        return [self._read(o) if x is None else x for o, x in zip(step.reads, lying, strict=True)]

    def _put(self, operand: Operand, result: Any) -> None:
        """Bring what the host computed to the device; around it lies what must stay."""
        if isinstance(result, DeviceArray):
            target = self._lying(operand)
            if target is not None and (target.dtype, target.shape) == (result.dtype, result.shape):
                self.backend.copy(target.memory.address, result.memory.address, result.nbytes)
                return
            result = result.numpy()
        layout: Any = operand.layout.at(self.env)
        found = self._checked(operand, layout.sizes, result)
        address = self._address(operand.buffer)
        if 0 in found.shape:
            return
        (low, high), size = layout.span, found.itemsize
        whole = self._download(address + low * size, (high - low + 1) * size)
        np.copyto(layout.of(whole.view(found.dtype), low), found)
        self._write(address + low * size, whole)

    def run(self, body: Graph, inputs: Sequence[Any]) -> list[Any]:
        """Run a control-flow body on its own plan."""
        return self.executor.body(body, inputs, self.env, self.streams, self._returned)
