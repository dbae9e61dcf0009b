"""Where there is no GPU, CuPy or NVRTC, and the log of NVRTC."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kn_cuda import ARCHITECTURES, CudaTarget, cuda_device, cuda_unavailable_reasons
from kn_cuda.nvrtc import Usage, parse_log
from kn_graph.errors import DeviceUnavailableError
from kn_plan.device_spec import CUDA_SPECS

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'scalar_map_b42c' for 'sm_90'
ptxas info    : Function properties for scalar_map_b42c
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 15 registers, used 0 barriers, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'copy_turned_1' for 'sm_90'
ptxas info    : Function properties for copy_turned_1
    1200 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 4224 bytes smem, 400 bytes cmem[0]
"""


def test_the_log_says_what_each_kernel_uses() -> None:
    assert parse_log(LOG) == {
        "scalar_map_b42c": Usage(15, 0, 0, 0),
        "copy_turned_1": Usage(40, 8, 1200, 4224),
    }


@pytest.mark.skipif(not cuda_unavailable_reasons(), reason="there is a GPU")
def test_without_a_gpu_the_error_lists_what_was_tried() -> None:
    with pytest.raises(DeviceUnavailableError, match="cuda:3 is not available") as error:
        cuda_device(3)
    assert error.value.reasons == cuda_unavailable_reasons(3)


def test_nothing_needs_cupy_to_be_imported() -> None:
    code = (
        "import sys; sys.modules['cupy'] = None; import kn_cuda; "
        "assert not any(n.startswith('cupy_backends') for n in sys.modules); "
        "sys.stdout.write(kn_cuda.cuda_unavailable_reasons()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("CuPy is not installed")


def test_described_devices_are_those_that_kernels_are_compiled_for() -> None:
    assert CUDA_SPECS.keys() <= set(ARCHITECTURES)
    assert CudaTarget("sm_75").arch == "sm_75"
