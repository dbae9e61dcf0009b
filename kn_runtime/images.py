"""Pictures as inputs of models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kn_graph.dtype import DType
from kn_graph.errors import InputShapeError, UsageError
from kn_graph.types import TensorType

__all__ = ["IMAGE_SUFFIXES", "ImageScaling", "read_image"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")


@dataclass(frozen=True)
class ImageScaling:
    """How pixels of 0 to 255 become numbers: `(pixel * scale - mean) / std`.

    Attributes:
        scale: None for 1/255 where the input is of a float type, and no scaling at all otherwise.
        mean: one number, or one a channel.
        std: one number, or one a channel.
    """

    scale: float | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


def read_image(
    path: Path, name: str, type: TensorType, scaling: ImageScaling
) -> np.ndarray[Any, Any]:
    """Read a picture as one input: grey for one channel, else RGB, resized to the input's size.

    Args:
        path: any format that Pillow reads.
        name: of the input, for errors.
        type: [N, C, H, W], [N, H, W, C] or without N, where C is 1 or 3; symbolic sizes take those
            of the picture.
        scaling: see `ImageScaling`.

    Raises:
        UsageError: Pillow is not installed, or the file is no picture.
        InputShapeError: the input is not shaped like a picture.
    """
    channel_axis, height, width = _axes(type, name)
    grey = type.shape[channel_axis] == 1
    image = _opened(path).convert("L" if grey else "RGB")
    size = [
        wanted if isinstance(wanted, int) else own
        for wanted, own in zip((width, height), image.size, strict=True)
    ]
    if list(image.size) != size:
        image = image.resize((size[0], size[1]), _bilinear())
    pixels = np.asarray(image).reshape(size[1], size[0], -1)
    return _arranged(_scaled(pixels, type.dtype, scaling), type, channel_axis)


def _opened(path: Path) -> Any:
    """Return the picture, turned as its camera was held."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UsageError("reading pictures needs Pillow: pip install 'kn-engine[images]'") from None
    try:
        image = ImageOps.exif_transpose(Image.open(path))
        image.load()
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UsageError(f"{path} is no picture that Pillow reads: {error}") from None
    if image.mode.startswith(("I", "F")):
        raise UsageError(f"{path} has more than 8 bits a channel; convert it to 8 bits first")
    return image


def _bilinear() -> Any:
    from PIL import Image

    return Image.Resampling.BILINEAR


def _axes(type: TensorType, name: str) -> tuple[int, Any, Any]:
    """Return the channel axis (from the end), and the declared height and width."""
    if type.rank in (3, 4):
        for channel in (-3, -1):
            if type.shape[channel] in (1, 3):
                rest = [s for a, s in enumerate(type.shape[-3:], -3) if a != channel]
                return channel, rest[0], rest[1]
    raise InputShapeError(
        f"input {name!r} of type {type} is not shaped like a picture: expected [N, C, H, W] or "
        "[N, H, W, C] with 1 or 3 channels",
        name=name,
        expected="[N, C, H, W] or [N, H, W, C]",
        got=str(type),
    )


def _scaled(pixels: np.ndarray[Any, Any], dtype: DType, scaling: ImageScaling) -> Any:
    if not dtype.is_float and scaling == ImageScaling():
        return pixels.astype(dtype.numpy)
    channels = pixels.shape[-1]
    for option, numbers in (("--mean", scaling.mean), ("--std", scaling.std)):
        if len(numbers) not in (1, channels):
            raise UsageError(
                f"{option} has {len(numbers)} numbers, the picture {channels} channels"
            )
    if 0 in scaling.std:
        raise UsageError("--std 0 would divide by zero")
    scale = scaling.scale if scaling.scale is not None else 1 / 255 if dtype.is_float else 1.0
    x = (pixels * scale - np.array(scaling.mean)) / np.array(scaling.std)
    return (x if dtype.is_float else np.rint(x)).astype(dtype.numpy)


def _arranged(pixels: Any, type: TensorType, channel_axis: int) -> np.ndarray[Any, Any]:
    x = pixels.transpose(2, 0, 1) if channel_axis == -3 else pixels
    return np.ascontiguousarray(x[None] if type.rank == 4 else x)
