"""cuDNN on a GPU: graphs are built when they are asked for first, and kept."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from kn_cuda.backend import Memory
from kn_cuda.conv_graph import ConvGraph
from kn_cuda.cudnn_graph import CudnnConv, cudnn_conv
from kn_graph.errors import DeviceUnavailableError, InternalError

__all__ = ["Cudnn"]


class Cudnn:
    """cuDNN for one stream; the frontend is imported when it is needed first.

    Attributes:
        builds: how many graphs were built.
    """

    def __init__(self, stream: int, allocate: Callable[[int], Memory]) -> None:
        """Remember where calls go.

        Args:
            stream: the address of the stream.
            allocate: gives memory for workspaces.
        """
        self._stream, self._allocate = stream, allocate
        self._opened: tuple[Any, int] | None = None
        self._graphs: dict[tuple[ConvGraph, tuple[int, ...]], CudnnConv] = {}
        self._workspace: Memory | None = None
        self._lock = RLock()
        self.builds = 0

    def conv(self, request: ConvGraph, pointers: list[int], numbers: list[int]) -> int:
        """Convolve; returns how many kernels that launches, as far as cuDNN says.

        Raises:
            DeviceUnavailableError: cuDNN or its frontend is not installed.
            InternalError: cuDNN refuses a graph that it was said to accept.
        """
        with self._lock:
            cudnn, handle = self._open()
            key = (request, tuple(numbers))
            found = self._graphs.get(key)
            if found is None:
                found = self._graphs[key] = self._built(cudnn, handle, *key)
            workspace = self._room(found.workspace)
            found.graph.execute(found.pack(pointers), workspace, handle=handle)
        return 1

    @property
    def workspace(self) -> Memory | None:
        """The memory that calls use now."""
        return self._workspace

    def _open(self) -> tuple[Any, int]:
        """Return the frontend and a handle of our stream."""
        if self._opened is None:
            try:
                import cudnn

                handle = int(cudnn.create_handle())
            except (ImportError, OSError) as error:
                raise _unavailable(f"its frontend cannot be imported ({error})") from None
            except RuntimeError as error:  # without the library there is a frontend all the same
                raise _unavailable(str(error)) from None
            cudnn.set_stream(handle=handle, stream=self._stream)
            self._opened = cudnn, handle
        return self._opened

    def _built(
        self, cudnn: Any, handle: int, request: ConvGraph, numbers: tuple[int, ...]
    ) -> CudnnConv:
        self.builds += 1
        try:
            return cudnn_conv(cudnn, request, numbers, handle=handle)
        except cudnn.cudnnGraphNotSupportedError as error:
            raise InternalError(
                f"cuDNN {cudnn.backend_version()} refuses {request} of {list(numbers)}, which the "
                f"table of kn_cuda.verdict says it accepts: {error}. Please report this."
            ) from None

    def _room(self, nbytes: int) -> int:
        """Return memory for a workspace: calls of a stream follow one another and share it."""
        if self._workspace is None or self._workspace.nbytes < nbytes:
            self._workspace = self._allocate(max(nbytes, 1))
        return self._workspace.address


def _unavailable(reason: str) -> DeviceUnavailableError:
    return DeviceUnavailableError(
        f"convolutions need cuDNN: {reason}; install 'kn-engine[cuda12]' or 'kn-engine[cuda13]'",
        (reason,),
    )
