"""IOBinding: inputs and outputs given once, by name, for runs that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_runtime.ort.errors import Fail, InvalidArgument, status
from kn_runtime.ort.reporting import Reporting
from kn_runtime.ort.values import OrtValue, array_at, element_dtype, on_host

if TYPE_CHECKING:
    from kn_runtime.ort.options import RunOptions
    from kn_runtime.ort.session import InferenceSession

__all__ = ["IOBinding"]


@dataclass
class Target:
    """Where a result goes.

    Attributes:
        value: the last result, or the memory that every run writes into.
        is_given: whether that memory is the caller's.
    """

    value: OrtValue
    is_given: bool = False

    def take(self, name: str, result: Any) -> None:
        """Note a result.

        Raises:
            Fail, InvalidArgument: it does not fit into the caller's memory.
        """
        if not self.is_given:
            self.value = OrtValue(result)
            return
        memory = self.value.numpy()
        if memory.dtype != result.dtype:
            raise status(
                InvalidArgument,
                f"Unexpected output data type. Actual: ({self.value.data_type()}) , expected: "
                f"({OrtValue(result).data_type()}) for output {name!r}",
            )
        if memory.shape != result.shape:
            raise status(
                Fail,
                f"The output OrtValue provided for output '{name}' has shape "
                f"{list(memory.shape)} but the computed output shape for this run is "
                f"{list(result.shape)}",
            )
        np.copyto(memory, result)


class IOBinding(Reporting):
    """Inputs and outputs of a session, bound by name. Contents of inputs are read at each run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, Target] = {}

    # ---- inputs -----------------------------------------------------------------------------

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to an array.

        Raises:
            RuntimeError: the model has no such input, or it is no array.
        """
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RuntimeError(
                f"Unable to create OrtValue from the given python object for input {name!r}: "
                f"expected a NumPy array, got {type(arr_on_cpu).__name__}"
            )
        self._bind_input(name, OrtValue(arr_on_cpu))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind an input to memory that the caller keeps alive.

        Raises:
            RuntimeError: the memory is not the host's, or the model has no such input.
        """
        on_host(device_type)
        array = array_at(buffer_ptr, element_dtype(element_type), shape)
        self._bind_input(name, OrtValue(array))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value."""
        self._bind_input(name, _value(name, ortvalue))

    def _bind_input(self, name: str, value: OrtValue) -> None:
        if name not in self._session._feedable:
            known = ", ".join(map(repr, self._session._feedable)) or "none"
            raise RuntimeError(
                f"Failed to find NodeArg with name: {name} in the def list; inputs are {known}"
            )
        self._inputs[name] = value

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()

    # ---- outputs ----------------------------------------------------------------------------

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output, written to the memory given or to fresh memory at each run.

        Raises:
            RuntimeError: the memory is not the host's.
        """
        on_host(device_type)
        if buffer_ptr is None or shape is None:
            self._outputs[name] = Target(OrtValue(None))
            return
        dtype = element_dtype(np.float32 if element_type is None else element_type)
        self._outputs[name] = Target(OrtValue(array_at(buffer_ptr, dtype, shape)), is_given=True)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output, written into a value."""
        value = _value(name, ortvalue)
        self._outputs[name] = Target(value, is_given=value.is_tensor())

    def clear_binding_outputs(self) -> None:
        """Forget all outputs."""
        self._outputs.clear()

    def get_outputs(self) -> list[OrtValue]:
        """Return the results of the last run, in the order in which they were bound."""
        return [target.value for target in self._outputs.values()]

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the results of the last run: arrays, and lists or dicts for what is none."""
        return [v.numpy().copy() if v.is_tensor() else v._value for v in self.get_outputs()]

    def synchronize_inputs(self) -> None:
        """Accept: host memory is ready when it is written."""

    def synchronize_outputs(self) -> None:
        """Accept: a run has ended when it returns."""

    def _run(self, run_options: RunOptions | None) -> None:
        if not self._outputs:
            raise status(InvalidArgument, "At least one output should be requested.")
        results = self._session.run(
            list(self._outputs), {n: v._value for n, v in self._inputs.items()}, run_options
        )
        for (name, target), result in zip(self._outputs.items(), results, strict=True):
            target.take(name, result)


def _value(name: str, value: Any) -> OrtValue:
    if not isinstance(value, OrtValue):
        raise AttributeError(
            f"{name!r} is bound to a {type(value).__name__}, not to an OrtValue "
            "(OrtValue.ortvalue_from_numpy makes one)"
        )
    return value
