"""A drop-in for the part of onnxruntime's Python API that packages use.

```python
import kn_runtime.ort as ort

session = ort.InferenceSession("model.onnx")
outputs = session.run(None, {"x": x})
```

Programs and packages that say `import onnxruntime` run unchanged:

```
python -m kn_runtime.ort program.py ...
```

or after `kn_runtime.ort.install()`. What is not there raises AttributeError that says so; nothing
ever falls back to another runtime.
"""

from __future__ import annotations

from typing import NoReturn

from kn_runtime.ort.binding import IOBinding
from kn_runtime.ort.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtMemType,
)
from kn_runtime.ort.install import install
from kn_runtime.ort.metadata import ModelMetadata, NodeArg
from kn_runtime.ort.options import RunOptions, SessionOptions
from kn_runtime.ort.providers import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from kn_runtime.ort.reporting import API_VERSION, lacking
from kn_runtime.ort.session import InferenceSession
from kn_runtime.ort.values import OrtDevice, OrtMemoryInfo, OrtValue

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "install",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

__version__ = API_VERSION
"""The version of onnxruntime whose API this is."""


def __getattr__(name: str) -> NoReturn:
    """Refuse what is not there, by name."""
    raise AttributeError(lacking(f"module {__name__!r} has no attribute {name!r}"), name=name)
