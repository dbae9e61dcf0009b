"""Which graphs cuDNN accepts, as a table: the planner has to know, and no driver is asked.

The rows hold for cuDNN 9.28 and were found by `kn_cuda.deviceless`, which has cuDNN build graphs
for devices that are only described; `pytest -m cudnn` compares them again. What a newer cuDNN
accepts beyond them runs by the next way that is known: see `kn_cuda.steps.conv`.
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
    """What cuDNN does not accept.

    Attributes:
        reason: what it is.
        source: how that is known.
        holds: whether a graph is of this kind, for a compute capability such as 90.
    """

    reason: str
    source: str
    holds: Callable[[ConvGraph, int], bool]


def _is_strict(graph: ConvGraph) -> bool:
    return graph.dtype is DType.FLOAT32 and graph.math == "fp32"


def _needs_compiled(graph: ConvGraph) -> bool:
    """Return whether only engines that are compiled at run time fuse what is behind."""
    return graph.residual or graph.activation not in ("none", "relu")


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
        "deviceless: NOT_SUPPORTED_ARCH_MISMATCH for a T4",
        lambda g, cc: g.dtype is DType.BFLOAT16 and cc < AMPERE,
    ),
    Rule(
        "engines that fuse a residual or other activations than relu use TF32 at least",
        "deviceless: no valid engine configurations without tensor cores",
        lambda g, cc: _is_strict(g) and _needs_compiled(g),
    ),
    Rule(
        "residuals and activations other than relu need channels last in float32",
        "deviceless: no valid engine configurations for NCHW",
        lambda g, cc: (
            g.dtype is DType.FLOAT32 and not g.channels_last and _needs_compiled(g)
        ),
    ),
    Rule(
        "nothing is fused behind a transposed convolution",
        "not asked for: gradients of data are built alone",
        lambda g, cc: g.transposed and not g.is_plain,
    ),
)  # fmt: skip
"""The first row that holds is why a graph is refused."""


def capability(arch: str) -> int:
    """Return the compute capability of an architecture: 90 for sm_90."""
    return int("".join(c for c in arch if c.isdigit()))


def refusal(graph: ConvGraph, arch: str) -> str | None:
    """Return why cuDNN does not accept a graph; None where it does.

    Args:
        graph: what is asked.
        arch: of the device, such as sm_90.
    """
    cc = capability(arch)
    return next((rule.reason for rule in RULES if rule.holds(graph, cc)), None)
