"""Consecutive scales and biases by constants become one scale and one bias.

x*s1 + b1 - b2, times s2 = x*(s1*s2) + (b1 - b2)*s2, and behind a convolution or a matrix product
with constant weights that nobody else reads, the scale goes into the weights:
conv(x, w)*S + B = conv(x, w*S) + B. So a batch normalisation, as the loader writes it (subtract,
divide, multiply, add), is gone behind a convolution, and is two operations elsewhere.

A difference (conv(x, w) - b) becomes a sum, so that whoever plans finds the bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kn_graph.op import Op
from kn_graph.ops.elementwise import Binary
from kn_graph.optimizer.affine import (
    Affine,
    Chain,
    Segment,
    apply_affine,
    apply_links,
    chain_below,
    goes_on,
    is_quantized,
    link_of,
    segments,
)
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.product import Product, product_of
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "FuseAffine", "scaled_product"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Found:
    """A chain of scales and biases.

    Attributes:
        base: what it is applied to.
        segments: its parts, the innermost first.
        product: what makes `base`, where the scale of the first segment goes into its weights.
        weights: the new weights.
    """

    base: Value
    segments: tuple[Segment, ...]
    product: Product | None = None
    weights: Array | None = None


_SUM = Binary("add")


class FuseAffine(Rule[Found]):
    """See the module."""

    name = "affine"
    roots: ClassVar[tuple[type[Op], ...]] = (Binary,)
    setting = "fuse_affine"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Look at the last step of a chain."""
        if link_of(edit, node) is None or goes_on(edit, node):
            return None
        chain = chain_below(edit, node.results[0])
        product = product_of(edit, chain.base.node)
        if len(chain.links) == 1 and (product is None or node.op == _SUM):
            return None
        if is_quantized(edit, chain.base):
            return None
        parts = segments(edit, chain.links, through=product is not None)
        refused = None
        if product is not None:
            found = _folded(edit, chain, parts, product)
            if isinstance(found, Found):
                return found
            refused = found
        if any(p.saved for p in parts):
            return Found(chain.base, tuple(parts))
        return refused

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Build the chain anew from the base on."""
        x, parts = found.base, list(found.segments)
        if found.product is not None:
            first = parts.pop(0)
            x = found.product.again(edit, found.product.x, found.weights)
            x = apply_affine(edit, x, Affine(None, first.inside.bias))
            x = apply_links(edit, x, first.layouts)
        for part in parts:
            if part.saved:
                x = apply_links(edit, apply_affine(edit, x, part.inside), part.layouts)
            else:
                x = apply_links(edit, x, part.links)
        return x


def _folded(
    edit: Editor, chain: Chain, parts: list[Segment], product: Product
) -> Found | Refused | None:
    """Return the chain with its first scale in the weights, if it has one and that is allowed."""
    first = parts[0].inside
    if first.scale is None:
        other = any(s.node.op != _SUM for s in parts[0].steps)
        return Found(chain.base, tuple(parts), product) if other else None
    weights = scaled_product(edit, product, first.scale)
    if isinstance(weights, Refused):
        return weights
    return Found(chain.base, tuple(parts), product, weights)


def scaled_product(edit: Editor, product: Product, scale: Array) -> Array | Refused:
    """Return weights that give the product times a scale, or why there are none."""
    if edit.uses(product.node.results[0]) != 1:
        return Refused("somebody else reads the product in front of the scale")
    factor = product.by_outputs(scale)
    if factor is None:
        return Refused("the scale is not one for each channel")
    if product.too_large:
        return Refused(product.too_large)
    weights = product.scaled(factor)
    return Refused(weights) if isinstance(weights, str) else weights


RULES = (FuseAffine(),)
