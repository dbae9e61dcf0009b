"""OrtValue and the devices that values lie on."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError
from kn_runtime.ort.enums import OrtAllocatorType, OrtMemType
from kn_runtime.ort.metadata import tensor_text
from kn_runtime.ort.reporting import Reporting

__all__ = [
    "OrtDevice",
    "OrtMemoryInfo",
    "OrtValue",
    "array_at",
    "element_dtype",
    "on_host",
    "value_dtype",
]

Array = np.ndarray[Any, Any]

DEVICE_TYPES = {"cpu": 0, "cuda": 1, "cann": 3, "dml": 4, "webgpu": 5}
"""Numbers of the kinds of devices."""

HOST = ("cpu", "cuda_pinned")
"""Names of memory that the processor reads."""

NO_TENSOR = "Creation of OrtValues is currently only supported from non-string numpy arrays"


def on_host(device_type: str) -> None:
    """Refuse memory of a device.

    Raises:
        RuntimeError: the device is not here.
        Exception: no such device is known, which onnxruntime says in this way.
    """
    if device_type in HOST:
        return
    if device_type not in DEVICE_TYPES:
        raise Exception(f"Unsupported device type: {device_type}")
    raise RuntimeError(
        f"Can't allocate memory on the device {device_type!r}: kn_runtime.ort keeps values in host "
        "memory. Give 'cpu'; where a session runs on a GPU, results come back to the host."
    )


def element_dtype(element_type: Any) -> DType:
    """Return the type that a NumPy dtype, its name or ONNX's number of it stands for."""
    if isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool):
        return DType.from_onnx(int(element_type))
    return DType.from_numpy(element_type)


def array_at(address: int, dtype: DType, shape: Sequence[int]) -> Array:
    """Return the array that lies at an address, which the caller keeps alive."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    buffer: Any = (ctypes.c_char * nbytes).from_address(address) if nbytes else b""
    return np.frombuffer(buffer, dtype.numpy).reshape(tuple(shape))


class OrtDevice(Reporting):
    """A device by kind and number."""

    def __init__(self, kind: str, index: int) -> None:
        self._kind, self._index = kind, index

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return a device.

        Raises:
            Exception: no such device is known.
        """
        if ort_device_name not in DEVICE_TYPES:
            raise Exception(f"Unsupported device type: {ort_device_name}")
        return OrtDevice(ort_device_name, device_id)

    @staticmethod
    def cpu() -> int:
        """Return the number of the kind that processors are of."""
        return DEVICE_TYPES["cpu"]

    @staticmethod
    def cuda() -> int:
        """Return the number of the kind that NVIDIA GPUs are of."""
        return DEVICE_TYPES["cuda"]

    def device_id(self) -> int:
        """Return which one of its kind."""
        return self._index

    def device_type(self) -> int:
        """Return the number of its kind."""
        return DEVICE_TYPES[self._kind]

    def device_mem_type(self) -> int:
        """Return 0: ordinary memory."""
        return 0

    def device_vendor_id(self) -> int:
        """Return 0: no vendor in particular."""
        return 0


class OrtMemoryInfo(Reporting):
    """A description of memory, kept as given."""

    def __init__(
        self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType
    ) -> None:
        self.name, self.allocator_type = name, allocator_type
        self.device_id, self.mem_type = device_id, mem_type


class OrtValue(Reporting):
    """A value in host memory: a tensor, or what a run gives besides (a list, a dict, None).

    A tensor made from a contiguous NumPy array is that array, not a copy.
    """

    def __init__(self, ortvalue: Any, dtype: DType | None = None) -> None:
        self._value: Any = ortvalue._value if isinstance(ortvalue, OrtValue) else ortvalue
        if dtype is None and isinstance(self._value, np.ndarray):
            dtype = DType.from_numpy(self._value.dtype)
        self._dtype = dtype

    # ---- making ones ------------------------------------------------------------------------

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return the value of an array, on the same memory if that is in row-major order.

        Raises:
            RuntimeError: it is no array of numbers, or the device is not here.
        """
        on_host(device_type)
        if not isinstance(numpy_obj, np.ndarray) or numpy_obj.dtype.kind in "OUST":
            raise RuntimeError(f"{NO_TENSOR}, got {type(numpy_obj).__name__}")
        return cls(np.ascontiguousarray(numpy_obj).reshape(numpy_obj.shape))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """Return the value whose bytes an array has, such as bfloat16 in an array of uint16.

        Raises:
            RuntimeError: elements have another size.
        """
        dtype = DType.from_onnx(onnx_element_type)
        if data.dtype.itemsize != dtype.itemsize:
            raise RuntimeError(
                f"Items size in the incoming array: {data.dtype.itemsize} specified by onnxtype: "
                f"{dtype.itemsize}"
            )
        return cls(np.ascontiguousarray(data).view(dtype.numpy), dtype)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Return a value of a shape, of zeros."""
        on_host(device_type)
        dtype = element_dtype(element_type)
        return cls(np.zeros(tuple(shape), dtype.numpy), dtype)

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Return the value of an array of another library, on the same memory."""
        return cls(np.from_dlpack(data))

    # ---- what it is -------------------------------------------------------------------------

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._tensor("data_ptr").ctypes.data)

    def device_name(self) -> str:
        """Return `cpu`."""
        return "cpu"

    def shape(self) -> list[int]:
        """Return the sizes of a tensor."""
        return list(self._tensor("shape").shape)

    def data_type(self) -> str:
        """Return the type as text, such as `tensor(float)`."""
        if self._dtype is not None:
            return tensor_text(self._dtype)
        if self.is_tensor_sequence():
            return f"seq({OrtValue(self._value[0]).data_type()})"
        return "seq(map)" if isinstance(self._value, list) else type(self._value).__name__

    def element_type(self) -> int:
        """Return ONNX's number of the element type."""
        self._tensor("element_type")
        assert self._dtype is not None
        return self._dtype.onnx_code

    def tensor_size_in_bytes(self) -> int:
        """Return the size of a tensor in memory."""
        return self._tensor("tensor_size_in_bytes").nbytes

    def has_value(self) -> bool:
        """Return whether an optional has a value."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Return whether this is a tensor."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Return whether this is a list of tensors."""
        found = isinstance(self._value, list)
        return found and all(isinstance(x, np.ndarray) for x in self._value) and bool(self._value)

    def is_sparse_tensor(self) -> bool:
        """Return False."""
        return False

    # ---- contents ---------------------------------------------------------------------------

    def numpy(self) -> Array:
        """Return a tensor as an array, on the same memory."""
        return self._tensor("numpy")

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Overwrite the elements of a tensor.

        Raises:
            RuntimeError: there are more or fewer of them.
        """
        array = self._tensor("update_inplace")
        given = data.numpy() if isinstance(data, OrtValue) else np.asarray(data)
        if given.size != array.size or given.dtype != array.dtype:
            raise RuntimeError(
                "The input size of numpy arrays does not match the size of the OrtValue: expected "
                f"{array.dtype}{list(array.shape)}, got {given.dtype}{list(given.shape)}."
            )
        array.reshape(-1)[...] = given.reshape(-1)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return the array, for `np.asarray`."""
        return np.array(self._tensor("__array__"), dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        """Return a capsule of the tensor's memory."""
        return self._tensor("__dlpack__").__dlpack__(**options)

    def to_dlpack(self) -> Any:
        """Return a capsule of the tensor's memory."""
        return self.__dlpack__()

    @property
    def _ortvalue(self) -> OrtValue:
        """Return itself: what onnxruntime wraps, which packages reach for."""
        return self

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Return that it is host memory."""
        return self._tensor("__dlpack_device__").__dlpack_device__()

    def _tensor(self, what: str) -> Array:
        if not isinstance(self._value, np.ndarray):
            self._refuse(what)
        return self._value

    def _refuse(self, what: str) -> NoReturn:
        raise RuntimeError(
            f"OrtValue.{what}: only OrtValues that are Tensors are supported, this is "
            f"{'empty' if self._value is None else 'a ' + type(self._value).__name__}"
        )


def value_dtype(x: Any) -> DType | None:
    """Return the element type of an array; None for what no tensor can hold."""
    try:
        return DType.from_numpy(x.dtype)
    except (DTypeError, AttributeError, TypeError):
        return None
