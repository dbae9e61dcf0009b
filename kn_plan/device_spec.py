"""What the planner is told about a device: numbers, never a question to a driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kn_graph.dtype import DType

__all__ = ["CUDA_SPECS", "DeviceSpec", "cpu_spec"]


@dataclass(frozen=True)
class DeviceSpec:
    """How fast a device is at best.

    Attributes:
        name: what texts call it.
        source: where the numbers are from.
        flops: of scalar programs, in operations a second.
        products: of convolutions and products, by the type of their operands; `flops` for others.
        bandwidth: of memory, in bytes a second.
        launch: seconds that starting a step takes.
    """

    name: str
    source: str
    flops: float
    bandwidth: float
    launch: float
    products: Mapping[DType, float] = field(default_factory=dict)

    def product_flops(self, dtype: DType | None) -> float:
        """Return the peak of products of a type."""
        return self.flops if dtype is None else self.products.get(dtype, self.flops)


def _cuda(
    name: str, flops: float, half: float, int8: float, bandwidth: float, **others: float
) -> DeviceSpec:
    """Return a GPU; numbers in 1e12. Float32 products are not rounded to TF32."""
    products = {
        DType.FLOAT16: half * 1e12,
        DType.BFLOAT16: others.get("bfloat16", half) * 1e12,
        DType.FLOAT64: others["double"] * 1e12,
        DType.INT8: int8 * 1e12,
        DType.UINT8: int8 * 1e12,
    }
    return DeviceSpec(name, "data sheet, dense", flops * 1e12, bandwidth * 1e12, 2.5e-6, products)


CUDA_SPECS: Mapping[str, DeviceSpec] = {
    "sm_75": _cuda("sm_75 (T4)", 8.1, 65, 130, 0.32, double=0.25, bfloat16=8.1),
    "sm_80": _cuda("sm_80 (A100 80 GB SXM)", 19.5, 312, 624, 2.04, double=19.5),
    "sm_86": _cuda("sm_86 (A10)", 31.2, 125, 250, 0.6, double=0.49),
    "sm_89": _cuda("sm_89 (L4)", 30.3, 121, 242, 0.3, double=0.49),
    "sm_90": _cuda("sm_90 (H100 SXM)", 66.9, 989, 1979, 3.35, double=66.9),
}
"""One board of each architecture; bounds on others scale."""

CYCLES = 2.5e9
"""Clock of a core that is taken where nothing was measured."""

FLOPS_A_CYCLE = {"base": 8, "avx2": 32, "avxvnni": 32, "avx512": 64, "neon": 16}
"""Of a core: fused multiply-adds of float32, two units wide."""

CPU_BANDWIDTH = 15e9


def cpu_spec(isa: str, threads: int) -> DeviceSpec:
    """Return what a CPU may reach; nothing is measured.

    Args:
        isa: instruction set of the kernels: base, avx2, avxvnni, avx512, neon.
        threads: how many work.
    """
    flops = FLOPS_A_CYCLE[isa] * CYCLES * threads
    products = {DType.FLOAT64: flops / 2, DType.INT8: 2 * flops, DType.UINT8: 2 * flops}
    name = f"cpu ({isa}, {threads} thread{'s' if threads > 1 else ''})"
    return DeviceSpec(name, "assumed: 2.5 GHz, 15 GB/s", flops, CPU_BANDWIDTH, 1e-7, products)
