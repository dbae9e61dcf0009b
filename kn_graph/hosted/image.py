"""Image files."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import DTypeError, ExecutionError, ShapeError
from kn_graph.hosted.function import Attributes, HostFunction
from kn_graph.op import InferContext
from kn_graph.types import TensorType

__all__ = ["FUNCTIONS"]

Array = np.ndarray[Any, Any]

MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
"""Pixel formats of ONNX, and the modes of Pillow to convert to."""


def _infer_decode(ctx: InferContext, a: Attributes, x: TensorType) -> TensorType:
    if x.dtype is not DType.UINT8:
        raise DTypeError(f"expected the bytes of a file as uint8, got {x.dtype}")
    if x.rank != 1:
        raise ShapeError(f"expected the bytes of a file in one axis, got {x}")
    channels = 1 if a["format"] == "Grayscale" else 3
    height, width = (ctx.data_symbol(name, lo=1) for name in ("height", "width"))
    return TensorType(DType.UINT8, (height, width, channels))


def _decode(a: Attributes, x: Array) -> Array:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ExecutionError(
            "decoding images needs Pillow: install it with `pip install kn-engine[images]`"
        ) from error
    try:
        image = Image.open(BytesIO(x.tobytes())).convert(MODES[a["format"]])
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise ExecutionError(f"the image cannot be decoded: {error}") from None
    pixels = np.array(image, np.uint8)
    if pixels.ndim == 2:
        return pixels[..., None]
    return pixels[..., ::-1] if a["format"] == "BGR" else pixels


FUNCTIONS = {
    "decode_image": HostFunction(_infer_decode, _decode, "image files are decoded by Pillow"),
}
