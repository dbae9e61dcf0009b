"""Scales and biases by constants in front of a convolution or matrix product go into its weights.

conv(x*S + B, w) = conv(x, w*S) + sum of w*B, where nothing is padded; with padding, whose zeros the
bias would have to reach, conv(x*S + B, w) = conv(x + B/S, w*S) saves the multiplication. Scales lie
along the channels of x, or along the inner axis of a product of matrices.

A bias alone stays: behind the product it would cost as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kn_graph.op import Op
from kn_graph.ops.matmul import MatMul
from kn_graph.optimizer.affine import (
    Affine,
    Link,
    apply_affine,
    apply_links,
    chain_below,
    is_quantized,
    segments,
)
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.product import PRODUCTS, Product, product_of
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "FoldInput"]

Array = np.ndarray[Any, Any]

MATRIX_BYTES = 4 << 20
"""Larger matrices are not copied to save a multiplication of their input: it is cheap, and models
of many gigabytes would no longer be mapped from their files."""


@dataclass(frozen=True)
class Found:
    """A product and what goes into it.

    Attributes:
        product: the product.
        base: its input, without scale and bias.
        before: what is left to apply to the base.
        layouts: then these layout operations.
        weights: the new weights.
        after: what the bias becomes behind the product.
    """

    product: Product
    base: Value
    before: Affine
    layouts: tuple[Link, ...]
    weights: Array
    after: Affine


class FoldInput(Rule[Found]):
    """See the module."""

    name = "affine_input"
    roots: ClassVar[tuple[type[Op], ...]] = PRODUCTS
    setting = "fuse_affine"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Find the last scale and bias that an operand is made by."""
        product = product_of(edit, node)
        if product is None or edit.uses(product.x) != 1:
            return None
        chain = chain_below(edit, product.x)
        links = list(chain.links)
        behind: list[Link] = []
        while links and links[-1].step is None:
            behind.insert(0, links.pop())
        if not links or is_quantized(edit, chain.base):
            return None
        last = segments(edit, links)[-1]
        base = last.links[0].inner(edit)
        if last.inside.scale is None:
            return None
        affine: Affine | None = last.outside
        for link in behind:
            affine = None if affine is None else affine.through(link.node, link.inner(edit).shape)
        if affine is None:
            return Refused("the scale or bias is not one for each channel")
        if isinstance(node.op, MatMul) and product.weights.nbytes > MATRIX_BYTES:
            return Refused(f"the weights take more than {MATRIX_BYTES >> 20} MiB")
        if product.too_large:
            return Refused(product.too_large)
        layouts = (*last.layouts, *behind)
        folded = _folded(product, affine, last.inside, saves=len(last.steps) > 1)
        if isinstance(folded, Refused):
            return folded
        return Found(product, base, folded.before, layouts, folded.weights, folded.after)

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Build the input, the product and its bias."""
        x = apply_links(edit, apply_affine(edit, found.base, found.before), found.layouts)
        return apply_affine(edit, found.product.again(edit, x, found.weights), found.after)


@dataclass(frozen=True)
class _Folded:
    before: Affine
    weights: Array
    after: Affine


def _folded(product: Product, affine: Affine, inside: Affine, *, saves: bool) -> _Folded | Refused:
    """Return what becomes of a scale and bias in front of a product.

    Args:
        product: the product.
        affine: the scale and bias.
        inside: the same, in front of the layout operations in between.
        saves: whether to keep a bias of the input is worth it.
    """
    scale, bias = affine.scale, affine.bias
    assert scale is not None
    factor = product.by_inputs(scale)
    if factor is None:
        return Refused("the scale is not one for each channel")
    weights = product.scaled(factor)
    if isinstance(weights, str):
        return Refused(weights)
    if bias is None:
        return _Folded(Affine(), weights, Affine())
    placed = product.by_inputs(bias)
    carried = None if placed is None else product.carried(placed)
    if carried is not None:
        return _Folded(Affine(), weights, Affine(bias=carried))
    if not saves:
        return Refused("the bias is not one for each output")
    assert inside.scale is not None
    assert inside.bias is not None
    with np.errstate(all="ignore"):
        shifted = Affine(bias=inside.bias / inside.scale)
    if not shifted.fits(product.dtype):
        return Refused("the bias cannot be divided by the scale")
    return _Folded(shifted, weights, Affine())


RULES = (FoldInput(),)
