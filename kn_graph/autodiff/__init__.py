"""Derivatives of graphs: reverse-mode differentiation in the graph itself.

```python
from kn_graph.autodiff import gradients

loss = graph.reduce("mean", error * error)
(step,) = gradients(loss, [weights])
graph.output("step", step)
```

What comes out are nodes like all others: they are optimized, planned, written and differentiated
again as such. The derivative of a scalar function follows from its expression over primitives, so a
new row of the scalar table needs none of its own.
"""

from kn_graph.autodiff.gradient import gradients

__all__ = ["gradients"]
