"""Write the generated models, the same bytes on every machine.

    python models/generate.py                     all of them, to models/generated/
    python models/generate.py --out DIR lstm_gru  one of them, elsewhere

Tests import `NAMES`, `build` and `inputs` instead.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

HERE = Path(__file__).resolve().parent
if __package__ in (None, ""):  # run as a script: the folder above is not on the path
    sys.path.insert(0, str(HERE.parent))

from models.architectures import ARCHITECTURES, Array  # noqa: E402

__all__ = ["NAMES", "build", "inputs", "main", "model_bytes", "read_sums"]

NAMES = tuple(ARCHITECTURES)
SUMS = HERE / "SHA256SUMS"


def build(name: str) -> onnx.ModelProto:
    """Return the model called `name`, one of `NAMES`."""
    return ARCHITECTURES[name].build()


def inputs(name: str, seed: int = 0, **dims: int) -> dict[str, Array]:
    """Return inputs for the model called `name`.

    Args:
        name: one of `NAMES`.
        seed: other seeds give other values of the same shapes.
        **dims: sizes for the symbols of the file; the others have small defaults.

    Raises:
        ValueError: the model has no symbol of that name.
    """
    architecture = ARCHITECTURES[name]
    unknown = dims.keys() - architecture.dims.keys()
    if unknown:
        known = ", ".join(architecture.dims)
        raise ValueError(f"{name} has the symbols {known}, not {', '.join(sorted(unknown))}")
    return architecture.feeds(np.random.default_rng(seed), {**architecture.dims, **dims})


def model_bytes(name: str) -> bytes:
    """Return the file of the model called `name`."""
    data: bytes = build(name).SerializeToString(deterministic=True)
    return data


def read_sums() -> dict[str, str]:
    """Return the checked-in sha256 of each model's file, by model name."""
    pairs = (line.split() for line in SUMS.read_text().splitlines())
    return {file.removesuffix(".onnx"): digest for digest, file in pairs}


def write_sums() -> None:
    """Write the sha256 of every model's file, in the format of `sha256sum`."""
    digests = {name: hashlib.sha256(model_bytes(name)).hexdigest() for name in NAMES}
    SUMS.write_text("".join(f"{digest}  {name}.onnx\n" for name, digest in digests.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, or 1 if a file is not what `SHA256SUMS` says."""
    parser = argparse.ArgumentParser(description="Write small models that tests share.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of: {', '.join(NAMES)}")
    parser.add_argument("--out", type=Path, default=HERE / "generated", help="folder to write to")
    parser.add_argument("--write-sums", action="store_true", help="accept the files as they are")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"no model called {', '.join(unknown)}; there are: {', '.join(NAMES)}")
    if options.write_sums:
        write_sums()
    options.out.mkdir(parents=True, exist_ok=True)
    sums, wrong = read_sums(), 0
    for name in options.names or NAMES:
        data = model_bytes(name)
        (options.out / f"{name}.onnx").write_bytes(data)
        same = hashlib.sha256(data).hexdigest() == sums.get(name)
        wrong += not same
        note = "" if same else "  differs from models/SHA256SUMS"
        print(f"{options.out / name}.onnx  {len(data):,} bytes{note}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
