"""The generated kernel that docs/architecture.md explains.

`python -m tests.docs.generated_kernel --update` writes its text there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

from kn_cuda import CudaOptions, CudaTarget
from kn_cuda.program import Skeleton
from kn_cuda.source import KernelSource, kernel_text, unit_text
from kn_graph import Graph
from kn_plan.options import PlanOptions
from kn_plan.planner import plan_graph

__all__ = ["PAGE", "explained_kernel", "page_with", "texts"]

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"

BLOCK = re.compile(r"```cpp\n.*?```", re.DOTALL)


def explained_kernel() -> KernelSource:
    """Return the kernel of `exp(x + bias)`."""
    graph = Graph("small")
    x = graph.input("x", "float32", ("n", 64))
    graph.output("y", graph.exp(x + graph.constant(np.zeros(64, np.float32))))
    options, plan_options = CudaOptions(), PlanOptions()
    plan = plan_graph(graph, CudaTarget("sm_90", options), plan_options)
    (kernel,) = Skeleton(plan, options, plan_options, "sm_90").kernels
    return kernel


def texts() -> list[str]:
    """Return what is generated, and the template that it is put into, as the compiler gets them."""
    kernel = explained_kernel()
    unit = unit_text([kernel])
    template = kernel_text(f"{kernel.family}.cu")
    template = template[template.index("template <class K>") :]
    assert kernel.text in unit
    assert template in unit
    return [kernel.text.rstrip(), template.rstrip()]


def page_with(page: str) -> str:
    """Return the page with the texts as they are now."""
    rest = iter(texts())
    return BLOCK.sub(lambda _: f"```cpp\n{next(rest)}\n```", page)


if __name__ == "__main__" and "--update" in sys.argv:
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
