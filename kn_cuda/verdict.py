"""Which graphs cuDNN is asked for, as a table: the planner has to know, and no driver is asked.

What cuDNN refuses was found by `kn_cuda.deviceless` with cuDNN 9.28 and its frontend 1.24, for
devices that are only described; `pytest -m cudnn` compares each row again. What is refused here
runs by the next way that is known: see `kn_cuda.conv_library`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kn_cuda.conv_graph import ConvGraph
from kn_graph.dtype import DType

__all__ = ["RULES", "Rule", "capability", "refusal"]

FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
AMPERE = 80


@dataclass(frozen=True)
class Rule:
    """What cuDNN is not asked for.

    Attributes:
        reason: what it is.
        source: how that is known.
        holds: whether a graph is of this kind, for a compute capability such as 90.
        chosen: whether cuDNN would accept it.
    """

    reason: str
    source: str
    holds: Callable[[ConvGraph, int], bool]
    chosen: bool = False


def _is_strict(graph: ConvGraph) -> bool:
    return graph.dtype is DType.FLOAT32 and graph.math == "fp32"


def _needs_compiled(graph: ConvGraph) -> bool:
    """Return whether only engines that are compiled at run time fuse what is behind.

    Those that are there before know a bias, and a bias with relu behind it.
    """
    known = graph.activation == "none" or (graph.activation == "relu" and graph.bias)
    return graph.residual or not known


RULES: tuple[Rule, ...] = (
    Rule(
        "cuDNN convolves float32, float16 and bfloat16, without a change of the type",
        "documentation",
        lambda g, cc: g.dtype not in FLOATS or g.out is not g.dtype,
    ),
    Rule(
        "cuDNN convolves over two or three axes",
        "documentation",
        lambda g, cc: g.rank not in (2, 3),
    ),
    Rule(
        "bfloat16 needs sm_80",
        "deviceless, T4: NOT_SUPPORTED_ARCH_MISMATCH",
        lambda g, cc: g.dtype is DType.BFLOAT16 and cc < AMPERE,
    ),
    Rule(
        "residuals, activations other than relu, and relu without a bias need the channels last",
        "deviceless, T4, A100, L4 and H100: no valid engine configurations",
        lambda g, cc: not g.channels_last and _needs_compiled(g),
    ),
    Rule(
        "over three axes, residuals and activations other than relu need sm_80",
        "deviceless, T4: no valid engine configurations for float32 by TF32",
        lambda g, cc: g.rank == 3 and cc < AMPERE and _needs_compiled(g),
    ),
    Rule(
        "of strict float32, the engine that fuses a residual or other activations is a slow one",
        "deviceless, H100: the kernel is fort_ffma_grouped_sm50, and no tuned one; not measured",
        lambda g, cc: _is_strict(g) and _needs_compiled(g),
        chosen=True,
    ),
    Rule(
        "nothing is fused behind a transposed convolution",
        "never tried: gradients are asked for alone",
        lambda g, cc: g.transposed and not g.is_plain,
        chosen=True,
    ),
)
"""The first row that holds is why a graph is not asked for."""


def capability(arch: str) -> int:
    """Return the compute capability of an architecture: 90 for sm_90."""
    return int("".join(c for c in arch if c.isdigit()))


def refusal(graph: ConvGraph, arch: str) -> str | None:
    """Return why cuDNN is not asked for a graph; None where it is.

    Args:
        graph: what is asked.
        arch: of the device, such as sm_90.
    """
    cc = capability(arch)
    return next((rule.reason for rule in RULES if rule.holds(graph, cc)), None)
