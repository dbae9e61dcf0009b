"""What cuDNN accepts on devices that are only described, against the table that plans go by.

Needs cuDNN, its frontend and a C compiler, 2.4 GB; `pytest -m cudnn tests/cuda/test_cudnn.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from kn_cuda.conv_graph import Activation, ConvGraph
from kn_cuda.deviceless import DEVICES, Answer, Asked, ask, missing
from kn_cuda.options import Math
from kn_cuda.verdict import RULES, capability, refusal
from kn_graph.dtype import DType

pytestmark = [
    pytest.mark.cudnn,
    pytest.mark.skipif(missing() is not None, reason=f"cuDNN cannot be asked: {missing()}"),
]

TYPES: tuple[tuple[DType, Math], ...] = (
    (DType.FLOAT32, "fp32"),
    (DType.FLOAT32, "tf32"),
    (DType.FLOAT16, "fp32"),
    (DType.BFLOAT16, "fp32"),
)
ACTIVATIONS: tuple[Activation, ...] = ("none", "relu", "silu", "gelu", "sigmoid", "tanh")


def numbers(
    graph: ConvGraph,
    channels: tuple[int, int],
    x: tuple[int, ...],
    kernel: int,
    pads: tuple[int, int],
) -> tuple[int, ...]:
    """Return the numbers of a call for two images; see `ConvGraph`."""
    rank = graph.rank
    wide = [(kernel - 1) * d + 1 - sum(pads) for d in graph.dilations]
    axes = list(zip(x, graph.strides, wide, strict=True))
    if graph.transposed:
        y = [(n - 1) * s + k for n, s, k in axes]
    else:
        y = [(n - k) // s + 1 for n, s, k in axes]
    return (2, *channels, *x, *(kernel,) * rank, *y, *(pads[0],) * rank, *(pads[1],) * rank)


def asked() -> Iterator[Asked]:
    """Yield graphs of every kind that plans ask for."""
    for (dtype, math), last in product(TYPES, (True, False)):
        graph = ConvGraph(dtype, dtype, (1, 1), (1, 1), channels_last=last, math=math)
        for residual, activation in product((False, True), ACTIVATIONS):
            behind = replace(graph, bias=residual, residual=residual, activation=activation)
            yield behind, numbers(behind, (64, 64), (56, 56), 3, (1, 1))
        plain = replace(graph, bias=True, activation="relu")
        for fused in (graph, plain, replace(plain, residual=True)):
            grouped, strided = replace(fused, groups=4), replace(fused, strides=(2, 2))
            wide = replace(fused, dilations=(2, 2))
            yield grouped, numbers(grouped, (64, 32), (28, 28), 3, (1, 1))
            yield strided, numbers(strided, (3, 64), (224, 224), 7, (3, 3))
            yield strided, numbers(strided, (5, 7), (17, 19), 3, (1, 0))
            yield wide, numbers(wide, (64, 64), (56, 56), 3, (2, 2))
            yield fused, numbers(fused, (40, 240), (14, 14), 1, (0, 0))
            body = replace(fused, strides=(1, 1, 1), dilations=(1, 1, 1))
            yield body, numbers(body, (8, 16), (9, 10, 11), 3, (1, 1))
        turned = replace(graph, transposed=True, strides=(2, 2))
        yield turned, numbers(turned, (32, 16), (14, 14), 4, (1, 1))


@pytest.mark.parametrize("arch", DEVICES)
def test_the_table_says_what_cudnn_accepts(arch: str) -> None:
    graphs = list(asked())
    answers = ask(graphs, arch)
    refused: dict[str | None, list[tuple[Asked, Answer]]] = {}
    for one, answer in zip(graphs, answers, strict=True):
        if answer.refusal:
            refused.setdefault(refusal(one[0], arch), []).append((one, answer))
    assert refused.pop(None, []) == []  # what plans ask for, cuDNN accepts
    reasons = {refusal(graph, arch) for graph, _ in graphs}
    # and what they do not is refused, if not for all sizes
    assert refused.keys() >= {r.reason for r in RULES if r.reason in reasons and not r.chosen}


def test_the_answer_of_another_device_is_another_one() -> None:
    graph = ConvGraph(DType.BFLOAT16, DType.BFLOAT16, (1, 1), (1, 1))
    one = [(graph, numbers(graph, (64, 64), (56, 56), 3, (1, 1)))]
    (old,), (new,) = ask(one, "sm_75"), ask(one, "sm_90")
    assert "ARCH_MISMATCH" in old.refusal or "No valid engine" in old.refusal
    assert not new.refusal
    assert new.plans > 0
    assert capability("sm_120") == 120
