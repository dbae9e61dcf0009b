"""What is not there says so: nobody finds out by wrong results that a part is missing."""

from __future__ import annotations

from typing import Any

__all__ = ["API_VERSION", "Reporting", "lacking"]

API_VERSION = "1.32.0"
"""The version of onnxruntime whose Python API is followed."""


def lacking(what: str) -> str:
    """Return what to say about a part of onnxruntime's API that is not there.

    Args:
        what: subject and verb, such as `module 'onnxruntime' has no attribute 'x'`.
    """
    return (
        f"{what}: kn_runtime.ort serves the part of onnxruntime {API_VERSION}'s Python API that "
        "docs/onnxruntime.md lists. If your program needs it, please report this line as an issue "
        "of kn-engine, with the call."
    )


class Reporting:
    """A class of onnxruntime's API, of which a part may be missing."""

    def __getattr__(self, name: str) -> Any:
        """Refuse what is not there, by name."""
        raise AttributeError(
            lacking(f"{type(self).__name__!r} object has no attribute {name!r}"),
            name=name,
            obj=self,
        )
