"""The CUDA executor: generated kernels and libraries over one arena.

Nothing here needs a GPU to be imported, and only `cuda_device` needs one to run: plans are made,
kernels are compiled, and both are proven on the host; see docs/cuda.md.
"""

from kn_cuda.device import cuda_device, cuda_unavailable_reasons
from kn_cuda.executor import CudaExecutor
from kn_cuda.host import HostBackend
from kn_cuda.options import CudaOptions
from kn_cuda.target import ARCHITECTURES, CudaTarget

__all__ = [
    "ARCHITECTURES",
    "CudaExecutor",
    "CudaOptions",
    "CudaTarget",
    "HostBackend",
    "cuda_device",
    "cuda_unavailable_reasons",
]
