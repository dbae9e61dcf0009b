"""Every error that leaves this library for a bad model, a bad input or a missing device.

```
KnError
  ModelError
    MalformedModelError         malformed_model       the file is broken or is not ONNX
    ExternalDataError           external_data         weights beside the file
    UnsupportedModelError       unsupported_operator  the file is fine, this library lacks it
  GraphError                    usage                 a graph is built or used wrongly
    ShapeError (ValueError)     shape_mismatch
    DTypeError (TypeError)      dtype_mismatch
    VerifyError                 internal
  InputError (ValueError)
    MissingInputError           missing_input
    UnexpectedInputError        unexpected_input
    InputShapeError             shape_mismatch
    InputDTypeError             dtype_mismatch
    SymbolError                 bad_size              sizes contradict each other or a bound
  ExecutionError (ValueError)   bad_value             a value breaks an operator's rule
  DeviceError
    DeviceUnavailableError      device_unavailable
    UnsupportedOnDeviceError    unsupported_on_device
  OutOfMemoryError (MemoryError)  out_of_memory
  CompileError                  compile_failed
  UsageError (ValueError)       usage                 a name or option that does not exist
  InternalError                 internal              a bug of this library
KnWarning (UserWarning)         the library goes on, such as for an opset it does not know
```

A message says what failed, where (file, node, operator, value), expected against got, and what
to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "CompileError",
    "DTypeError",
    "DeviceError",
    "DeviceUnavailableError",
    "ExecutionError",
    "ExternalDataError",
    "GraphError",
    "InputDTypeError",
    "InputError",
    "InputShapeError",
    "InternalError",
    "KnError",
    "KnWarning",
    "MalformedModelError",
    "MissingInputError",
    "ModelError",
    "OutOfMemoryError",
    "ShapeError",
    "SymbolError",
    "UnexpectedInputError",
    "UnsupportedModelError",
    "UnsupportedOnDeviceError",
    "UnsupportedOperator",
    "UsageError",
    "VerifyError",
]


class KnError(Exception):
    """Base of all errors of this library; `category` is one stable word for tools."""

    category: ClassVar[str] = "internal"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self._context: list[str] = []

    def add_context(self, where: str) -> None:
        """Name a place around the failure; the outermost place ends up first in the text."""
        self._context.insert(0, where)

    def __str__(self) -> str:
        """Return the context, outermost first, then the message."""
        return ": ".join([*self._context, str(self.args[0])])


class KnWarning(UserWarning):
    """The library goes on, but something may not be as expected."""


class ModelError(KnError):
    """A model file cannot be used."""


class MalformedModelError(ModelError):
    """The file is damaged, is not ONNX, or contradicts the ONNX specification."""

    category = "malformed_model"


class ExternalDataError(ModelError):
    """Weights stored outside the model file are missing, damaged or may not be read."""

    category = "external_data"


@dataclass(frozen=True)
class UnsupportedOperator:
    """One kind of operator that a model needs and this library lacks."""

    operator: str
    opset: int
    count: int
    first_node: str
    reason: str = ""

    def __str__(self) -> str:
        """Return `operator-opset x count (first node)`."""
        text = f"{self.operator}-{self.opset} x{self.count} (first: {self.first_node})"
        return f"{text}: {self.reason}" if self.reason else text


class UnsupportedModelError(ModelError):
    """The model is valid, but needs something that this library does not implement.

    Attributes:
        operators: every unsupported operator of the model, not only the first.
    """

    category = "unsupported_operator"

    def __init__(self, message: str, operators: Sequence[UnsupportedOperator] = ()) -> None:
        super().__init__(message)
        self.operators = tuple(operators)


class GraphError(KnError):
    """A graph was built or used wrongly: a name that exists already, a value of another graph."""

    category = "usage"


class ShapeError(GraphError, ValueError):
    """Shapes, ranks or axes do not fit an operation."""

    category = "shape_mismatch"


class DTypeError(GraphError, TypeError):
    """Element types do not fit an operation."""

    category = "dtype_mismatch"


class VerifyError(GraphError):
    """A graph breaks an invariant of the IR: a bug of whoever built it."""

    category = "internal"


class InputError(KnError, ValueError):
    """The values given to an evaluation do not fit the model.

    Attributes:
        name: the input concerned, if it is one.
        expected: what the model declares.
        got: what was given.
    """

    def __init__(self, message: str, *, name: str = "", expected: str = "", got: str = "") -> None:
        super().__init__(message)
        self.name, self.expected, self.got = name, expected, got


class MissingInputError(InputError):
    """A required input was not given."""

    category = "missing_input"


class UnexpectedInputError(InputError):
    """An input was given that the model does not have."""

    category = "unexpected_input"


class InputShapeError(InputError):
    """An input has the wrong rank or size."""

    category = "shape_mismatch"


class InputDTypeError(InputError):
    """An input has the wrong element type; nothing is converted silently."""

    category = "dtype_mismatch"


class SymbolError(InputError):
    """Sizes contradict each other, or a symbolic size is unknown or not legal."""

    category = "bad_size"


class ExecutionError(KnError, ValueError):
    """A value met while running breaks the rule of an operator, such as an index out of range."""

    category = "bad_value"


class DeviceError(KnError):
    """A device cannot be used."""


class DeviceUnavailableError(DeviceError):
    """The device asked for is absent or fails; the text lists what was tried.

    Attributes:
        reasons: one text for each thing that was tried.
    """

    category = "device_unavailable"

    def __init__(self, message: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reasons = tuple(reasons)


class UnsupportedOnDeviceError(DeviceError):
    """The device asked for cannot run some nodes of the graph."""

    category = "unsupported_on_device"


class OutOfMemoryError(KnError, MemoryError):
    """Running would need more memory than there is; raised before allocating."""

    category = "out_of_memory"


class CompileError(KnError):
    """A kernel did not compile; the text holds the compiler's log."""

    category = "compile_failed"


class UsageError(KnError, ValueError):
    """A device, option or value was asked for that does not exist."""

    category = "usage"


class InternalError(KnError):
    """A bug of this library. Please report it."""

    category = "internal"
