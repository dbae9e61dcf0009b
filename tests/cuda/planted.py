"""Launches a kernel of `kernels/wrong.cu`, with its mistake or without: `test_sanitizers` looks on.

python -m tests.cuda.planted ENTRY [--wrong]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kn_cuda import source
from kn_cuda.builder import KernelBuilder
from kn_cuda.calls import Launch
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand
from tests.cuda.run import SEEDS, run_launch

__all__ = ["COUNT", "launch_of", "main", "results", "text_of"]

COUNT = 64
KNOWN = source.kernel_text


def text_of(file: str) -> str:
    """Return the text of a file of kernels, the wrong ones included."""
    if file == "wrong.cu":
        return (Path(__file__).parent / "kernels" / file).read_text()
    return KNOWN(file)


def launch_of(entry: str, *, wrong: bool) -> Launch:
    """Return a launch of one block, or of two."""
    dense = StridedLayout.contiguous((COUNT,))
    b = KernelBuilder("wrong", entry, COUNT)
    b.constant("WRONG", wrong)
    b.reads("x", Operand(0, dense), "float")
    b.writes("y", Operand(1, dense), "float")
    b.number("count", 40)
    return b.launch(2 if entry == "blocks_share" else 1, shared=4 * COUNT)


def results(launch: Launch) -> list[bytes]:
    """Return what two orders of threads give.

    Raises:
        InternalError: the shim saw what is wrong.
    """
    x, y = np.arange(COUNT, dtype=np.float32), np.full(COUNT, np.nan, np.float32)
    return [run_launch(launch, [x, y], seed=seed)[1].tobytes() for seed in SEEDS]


def main(arguments: Sequence[str]) -> None:
    """Launch the kernel of that name."""
    source.kernel_text = text_of  # type: ignore[assignment]
    results(launch_of(arguments[0], wrong="--wrong" in arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
