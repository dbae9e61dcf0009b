"""Products of matrices: by a library, or by our kernels with the program behind them.

The rule, for each product at its sizes:

- At most 8 rows: our kernel. Either way each weight is read once and memory is the limit; ours
  applies the program, and needs no second launch to add up what blocks have.
- What the library cannot do, or only in several calls (a program behind, operands to copy, a loop
  around it): our tiled kernel where what that saves is worth more than the library's speed; see
  `Prices`. A program that runs in the next kernel costs the library nothing.
- All else: the library.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from kn_cuda.axes import joined
from kn_cuda.calls import Gemm, Launch, LibraryCall
from kn_cuda.gemm_kernel import FEW_ROWS, TILE, Product
from kn_cuda.lowering import Calls, Lowering
from kn_cuda.rows import at_most
from kn_graph.dim import Size, size_max
from kn_graph.dtype import DType
from kn_graph.ops.matmul import MatMul
from kn_graph.types import Shape
from kn_plan.calls import UnsupportedError
from kn_plan.device_spec import CUDA_SPECS
from kn_plan.layout import StridedLayout
from kn_plan.plan import Operand, Step

__all__ = ["Prices", "matmul", "product", "product_alone"]

TYPES = {
    (DType.FLOAT32, DType.FLOAT32),
    (DType.FLOAT64, DType.FLOAT64),
    (DType.FLOAT16, DType.FLOAT16),
    (DType.FLOAT16, DType.FLOAT32),
    (DType.BFLOAT16, DType.BFLOAT16),
    (DType.BFLOAT16, DType.FLOAT32),
}
"""Of operands and result, that a library multiplies."""

OWN_SHARE = 0.5
"""Of the peak without tensor cores, that our tiled kernel reaches; assumed."""

LIBRARY_SHARE = 0.8
"""Of the peak, that a library reaches; assumed."""

MULTIPROCESSORS = 132
"""Of a large GPU: what a single tile takes is the time of this many."""

SPLITS = 4
"""How much sooner a library is ready than one of our tiles, where these are few; assumed."""


@dataclass(frozen=True)
class Prices:
    """What our kernel may cost, compared with a library and a launch behind it.

    The launch that is spared takes `launch` seconds, and moves each result twice. Each product
    takes our kernel `1 / own - 1 / library` seconds longer; and where tiles are few, the time of
    one tile counts, which a library splits.

    Attributes:
        work: products that are worth a launch.
        free: products of each result that are worth its way through memory.
        deep: products of each result at which a single tile takes too long.
    """

    work: int
    free: int
    deep: int

    @classmethod
    def of(cls, arch: str, dtype: DType) -> Prices:
        """Return the prices on a device, for operands of a type."""
        spec = CUDA_SPECS.get(arch, CUDA_SPECS["sm_90"])
        own = OWN_SHARE * min(spec.flops, spec.product_flops(dtype)) / 2
        slower = 1 / own - 1 / (LIBRARY_SHARE * spec.product_flops(dtype) / 2)
        tile = TILE * TILE * MULTIPROCESSORS / own * (1 - 1 / SPLITS)
        free = 2 * dtype.itemsize / spec.bandwidth / slower
        return cls(int(spec.launch / slower), int(free), int(spec.launch / tile))

    def worth(self, product: Product) -> Size:
        """Return 1 where our kernel is to compute a product, else 0."""
        behind = size_max(0, product.depth - self.free)
        shallow = at_most(product.depth, self.deep + self.free)
        return at_most(product.results * behind, self.work) * shallow


def matmul(low: Lowering, step: Step, op: MatMul) -> Calls:
    """Multiply matrices, and apply the program of the step."""
    return _calls(low, step, Product(low, step))


def product_alone(low: Lowering, step: Step) -> Calls:
    """Multiply matrices; the program runs elsewhere, and reads what lies in the step's result."""
    return _calls(low, step, Product(low, step, low.result(step)))


def _calls(low: Lowering, step: Step, product: Product) -> Calls:
    """Return alternatives, of which sizes choose one."""
    few = at_most(product.rows, FEW_ROWS)
    more = 1 - few
    library: Calls = []
    own: Size = 1
    with suppress(UnsupportedError):
        library = _library(low, step, product.into is None)
        alone = len(library) == 1 and _loops(library[0]) == 1
        own = 0 if alone else Prices.of(low.arch, low.dtype(step.reads[0])).worth(product)
    found: Calls = [product.few(few), product.tiled(more * own)]
    found += [replace(call, guard=more * (1 - own)) for call in library]
    return [call for call in found if call.guard != 0]


def _loops(call: Launch | LibraryCall) -> Size:
    """Return how often a library is called: see `Gemm`."""
    return call.numbers[6] if isinstance(call, LibraryCall) else 1


def _library(low: Lowering, step: Step, programmed: bool) -> Calls:
    """Return the call of a library, with copies around it and the program behind it.

    Raises:
        UnsupportedError: it multiplies nothing like that.
    """
    assert step.node is not None
    dtype, out = low.dtype(step.reads[0]), step.node.results[0].dtype
    if (dtype, out) not in TYPES or low.dtype(step.reads[1]) is not dtype:
        raise UnsupportedError(f"no library multiplies {dtype} to {out}")
    calls: Calls = []
    a, b = (_as_lines(low, x, calls) for x in step.reads)
    result = low.result(step)
    target = result
    if not _lines(result.layout):
        target = low.temporary(out, step.shape)
    call = _product(low, a, b, target, dtype, out)
    calls.append(call)
    if target is not result:
        calls.append(low.copy(result, target))
    return [*calls, *(low.behind(step, result) if programmed else ())]


def product(low: Lowering, a: Operand, b: Operand, out: Operand) -> Calls:
    """Return what multiplies matrices inside a step; rows of the result are dense.

    Args:
        low: the lowering of the plan.
        a: the left operand, a matrix.
        b: the right one.
        out: where the product goes.
    """
    calls: Calls = []
    left, right = (_as_lines(low, x, calls) for x in (a, b))
    return [*calls, _product(low, left, right, out, low.dtype(a), low.dtype(out))]


def _lines(layout: StridedLayout) -> bool:
    """Return whether the elements of rows lie side by side, and a library can tell rows apart."""
    return layout.strides[-1] == 1 and layout.strides[-2] != 0


def _turned(layout: StridedLayout) -> StridedLayout:
    axes = [*range(layout.rank - 2), layout.rank - 1, layout.rank - 2]
    return layout.permute(axes)


def _as_lines(low: Lowering, x: Operand, calls: Calls) -> Operand:
    """Return an operand whose rows or columns lie side by side, copied where they do not."""
    sizes, strides = x.layout.sizes[-2:], x.layout.strides[-2:]
    repeated = any(n != 1 and s == 0 for n, s in zip(sizes, strides, strict=True))
    if 1 in strides and not repeated:
        return x
    made = low.temporary(low.dtype(x), x.layout.sizes)
    calls.append(low.copy(made, x))
    return made


def _product(
    low: Lowering, a: Operand, b: Operand, out: Operand, dtype: DType, result: DType
) -> LibraryCall:
    a_turned, b_turned = (x.layout.strides[-1] != 1 for x in (a, b))
    rows = [
        _turned(a.layout) if a_turned else a.layout,
        _turned(b.layout) if b_turned else b.layout,
    ]
    lines = [*rows, out.layout]
    m, n = out.layout.sizes[-2:]
    k = a.layout.sizes[-1]
    steps = tuple(x.strides[-2] for x in lines)
    batch = _batches(out.layout.sizes[:-2], *(x.strides[:-2] for x in lines))
    request = Gemm(dtype, result, a_turned, b_turned, low.options.math)
    numbers = (m, n, k, *steps, *batch)
    return LibraryCall(request, (a, b, out), numbers, out.layout.numel)


def _batches(sizes: Shape, *strides: Shape) -> tuple[Size, ...]:
    """Return an outer and an inner batch, each with the strides of all operands.

    Raises:
        UnsupportedError: there are more than two.
    """
    joined_sizes, by_operand = joined(sizes, *strides)
    missing = 2 - len(joined_sizes)
    if missing < 0:
        raise UnsupportedError("its matrices lie in more than two ways")
    padded = (1,) * missing + joined_sizes
    rows = [(0,) * missing + steps for steps in by_operand]
    return tuple(n for i in (0, 1) for n in (padded[i], *(steps[i] for steps in rows)))
