"""Whether results of another executor agree with the reference, and where they begin not to.

```python
band = model_band(graph, inputs)
report = compare_outputs(device_outputs, band)
print(report.describe())
```

A band says how far each element may be from the reference. The *step band* is for one operation
that was fed the reference's operands; the *model band* is for a whole graph from end to end. NaN
and infinities have to be at the same places, integers and bools are exact.
"""

from kn_graph.compare.bisection import Divergence, Runner, bisect
from kn_graph.compare.finite import NotFinite, find_not_finite
from kn_graph.compare.model import model_band
from kn_graph.compare.precision import to_float64
from kn_graph.compare.step import Products, step_band
from kn_graph.compare.verdict import (
    HISTOGRAM,
    Band,
    CompareReport,
    Verdict,
    Worst,
    compare_arrays,
    compare_outputs,
)

__all__ = [
    "HISTOGRAM",
    "Band",
    "CompareReport",
    "Divergence",
    "NotFinite",
    "Products",
    "Runner",
    "Verdict",
    "Worst",
    "bisect",
    "compare_arrays",
    "compare_outputs",
    "find_not_finite",
    "model_band",
    "step_band",
    "to_float64",
]
