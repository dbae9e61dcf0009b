"""Run ONNX models on the best device there is.

```python
import kn_runtime

model = kn_runtime.load("model.onnx")
outputs = model.eval({"x": x})
```
"""

from kn_graph.bound_call import BoundCall
from kn_runtime.device import Device
from kn_runtime.load import load
from kn_runtime.options import PrepareOptions
from kn_runtime.overview import CacheInfo
from kn_runtime.pending import PendingEval
from kn_runtime.prepared import PreparedGraph

__version__ = "0.1.0"
__all__ = [
    "BoundCall",
    "CacheInfo",
    "Device",
    "PendingEval",
    "PrepareOptions",
    "PreparedGraph",
    "__version__",
    "load",
]
