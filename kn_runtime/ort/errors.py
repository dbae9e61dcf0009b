"""Exceptions with the names of onnxruntime's, and how errors of this library become them.

Texts begin like onnxruntime's, since programs look at them; the error of this library is the cause
(`__cause__`) and has the details.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kn_graph.errors import (
    CompileError,
    DeviceError,
    DTypeError,
    ExecutionError,
    ExternalDataError,
    GraphError,
    InputError,
    KnError,
    MalformedModelError,
    OutOfMemoryError,
    UnsupportedModelError,
    UsageError,
)

__all__ = [
    "EXCEPTIONS",
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
    "StatusError",
    "loading",
    "run_error",
    "status",
]


class StatusError(Exception):
    """Base of what onnxruntime raises with a status; it has no such base, so nobody names this.

    Attributes:
        code: onnxruntime's number of the status.
        label: its name.
    """

    code = 0
    label = ""


def _status_class(name: str, code: int, label: str, doc: str) -> type[StatusError]:
    return type(name, (StatusError,), {"code": code, "label": label, "__doc__": doc})


Fail = _status_class("Fail", 1, "FAIL", "Something went wrong; the text says what.")
InvalidArgument = _status_class("InvalidArgument", 2, "INVALID_ARGUMENT", "A wrong input.")
NoSuchFile = _status_class("NoSuchFile", 3, "NO_SUCHFILE", "The model file is not there.")
NoModel = _status_class("NoModel", 4, "NO_MODEL", "No model was loaded.")
EngineError = _status_class("EngineError", 5, "ENGINE_ERROR", "The engine failed.")
RuntimeException = _status_class(
    "RuntimeException", 6, "RUNTIME_EXCEPTION", "A run failed, such as for lack of memory."
)
InvalidProtobuf = _status_class("InvalidProtobuf", 7, "INVALID_PROTOBUF", "The file is not ONNX.")
ModelLoaded = _status_class("ModelLoaded", 8, "MODEL_LOADED", "A model was loaded before.")
NotImplemented = _status_class(
    "NotImplemented", 9, "NOT_IMPLEMENTED", "The model is valid, and needs what is not there."
)
InvalidGraph = _status_class("InvalidGraph", 10, "INVALID_GRAPH", "The model breaks a rule.")
EPFail = _status_class("EPFail", 11, "EP_FAIL", "A device failed.")
ModelLoadCanceled = _status_class(
    "ModelLoadCanceled", 12, "MODEL_LOAD_CANCELED", "Loading was cancelled."
)
ModelRequiresCompilation = _status_class(
    "ModelRequiresCompilation", 13, "MODEL_REQUIRES_COMPILATION", "The model is not compiled."
)
NotFound = _status_class("NotFound", 14, "NOT_FOUND", "A name is unknown.")

EXCEPTIONS = (
    Fail, InvalidArgument, NoSuchFile, NoModel, EngineError, RuntimeException, InvalidProtobuf,
    ModelLoaded, NotImplemented, InvalidGraph, EPFail, ModelLoadCanceled,
    ModelRequiresCompilation, NotFound,
)  # fmt: skip

LOADING: dict[type[KnError], type[StatusError]] = {
    MalformedModelError: InvalidGraph,
    ExternalDataError: Fail,
    UnsupportedModelError: NotImplemented,
    DTypeError: InvalidGraph,
    GraphError: Fail,
    InputError: InvalidArgument,
    DeviceError: EPFail,
    OutOfMemoryError: RuntimeException,
}
"""What an error becomes while a model is loaded: the first entry that it is an instance of."""

RUNNING: dict[type[KnError], type[StatusError]] = {
    **LOADING,
    InputError: Fail,  # what onnxruntime finds before running is checked before running
    ExecutionError: Fail,
    CompileError: EPFail,
    UsageError: InvalidArgument,
}
"""The same while it runs."""


def status(kind: type[StatusError], text: str) -> StatusError:
    """Return an exception with the text that onnxruntime gives a status."""
    return kind(f"[ONNXRuntimeError] : {kind.code} : {kind.label} : {text}")


@contextmanager
def loading() -> Iterator[None]:
    """Turn errors of this library into those of a session that is made."""
    try:
        yield
    except KnError as error:
        raise _translated(error, LOADING) from error


def run_error(error: KnError) -> StatusError:
    """Return what an error of this library is for somebody who called `run`."""
    return _translated(error, RUNNING)


def _translated(error: KnError, table: dict[type[KnError], type[StatusError]]) -> StatusError:
    kind = next((s for k, s in table.items() if isinstance(error, k)), Fail)
    return status(_of_operators(error) or kind, str(error))


def _of_operators(error: KnError) -> type[StatusError] | None:
    """Return what an unknown operator is: onnxruntime distinguishes by who should know it."""
    if not isinstance(error, UnsupportedModelError) or not error.operators:
        return None
    from onnx import defs

    first = error.operators[0].operator
    domain, _, name = first.rpartition(":")
    if domain not in ("", "ai.onnx", "ai.onnx.ml", "com.microsoft"):
        return Fail
    is_standard = domain == "com.microsoft" or defs.has(name, domain if domain != "ai.onnx" else "")
    return NotImplemented if is_standard else InvalidGraph
