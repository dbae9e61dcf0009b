"""What kernels tell of data that does not fit, and the errors that it becomes.

Texts are those of the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kn_graph.dim import Size, Symbol, evaluate, size_min, size_sum
from kn_graph.errors import ExecutionError
from kn_graph.types import Shape
from kn_plan.calls import Status

__all__ = [
    "index_status",
    "lengths_status",
    "reduction_status",
    "region_status",
    "sizes_differ",
]


def index_status(axes: Sequence[int], sizes: Shape) -> Status:
    """Return what tells of an index that does not exist, and its place in the tuple.

    Args:
        axes: that the indices of a tuple point along.
        sizes: of these.
    """

    def error(words: Sequence[int], env: Mapping[Symbol, int]) -> ExecutionError:
        _, index, place = words
        axis, size = axes[place], evaluate(sizes[place], env)
        return ExecutionError(f"index {index} is out of range for axis {axis} of size {size}")

    return Status(error)


def lengths_status(steps: Size) -> Status:
    """Return what tells of a length that is longer than the sequences."""

    def error(words: Sequence[int], env: Mapping[Symbol, int]) -> ExecutionError:
        most = evaluate(steps, env)
        return ExecutionError(f"sequence_lens holds {words[1]}; the sequences have {most} steps")

    return Status(error)


def reduction_status(old: Shape, new: Shape) -> Status:
    """Return what tells of sizes that cannot be reduced to others; see `sizes_differ`."""

    def error(words: Sequence[int], env: Mapping[Symbol, int]) -> ExecutionError:
        sizes = ([evaluate(n, env) for n in shape] for shape in (old, new))
        return ExecutionError("cannot reduce {} to {}".format(*sizes))

    return Status(error)


def region_status(images: Size) -> Status:
    """Return what tells of a region of an image that does not exist, or (2) that is not finite."""

    def error(words: Sequence[int], env: Mapping[Symbol, int]) -> ExecutionError:
        kind, image, region = words
        count = evaluate(images, env)
        of_none = f"is of image {image}, and there are {count} images"
        return ExecutionError(f"region {region} {of_none if kind == 1 else 'is not finite'}")

    return Status(error)


def sizes_differ(old: Shape, new: Shape) -> Size:
    """Return 1 where a new size is neither 1 nor the old one, else 0."""
    wrong = [(m - 1) * (m - n) for n, m in zip(old, new, strict=True)]
    return size_min(1, size_sum([n * n for n in wrong]))
