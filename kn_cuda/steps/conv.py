"""Convolutions: by cuDNN as one graph, else alone with the program behind, else by our kernels."""

from __future__ import annotations

from kn_cuda.conv_kernel import own_conv
from kn_cuda.conv_library import library_conv
from kn_cuda.lowering import Calls, Lowering
from kn_graph.ops.conv import Conv, ConvTranspose
from kn_plan.plan import Step

__all__ = ["conv", "conv_transpose"]


def conv(low: Lowering, step: Step, op: Conv) -> Calls:
    """Convolve."""
    return library_conv(low, step, op) or own_conv(low, step, op)


def conv_transpose(low: Lowering, step: Step, op: ConvTranspose) -> Calls:
    """Transpose a convolution."""
    return library_conv(low, step, op) or own_conv(low, step, op)
