"""Scales and biases that are computed in a wider type, behind a product of a narrow one.

cast(cast(conv(x, w), float32)*S + B, float16) = conv(x, w*S) + B, with w*S and B rounded to float16
once. The loader computes the batch normalisation of narrow floats so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kn_graph.op import Op
from kn_graph.ops.elementwise import Cast
from kn_graph.optimizer.affine import (
    Affine,
    Segment,
    apply_affine,
    apply_links,
    chain_below,
    segments,
)
from kn_graph.optimizer.editor import Editor
from kn_graph.optimizer.polynomial import FLOATS
from kn_graph.optimizer.product import Product, product_of
from kn_graph.optimizer.rule import Refused, Rule
from kn_graph.optimizer.rules.affine import scaled_product
from kn_graph.optimizer.settings import OptimizerSettings
from kn_graph.value import Node, Value

__all__ = ["RULES", "FuseWideAffine"]


@dataclass(frozen=True)
class Found:
    """A product, and the scale and bias between the casts behind it.

    Attributes:
        product: the product.
        weights: its new weights; None where they stay.
        segment: the scale and bias.
    """

    product: Product
    weights: np.ndarray[Any, Any] | None
    segment: Segment


class FuseWideAffine(Rule[Found]):
    """See the module."""

    name = "affine_cast"
    roots: ClassVar[tuple[type[Op], ...]] = (Cast,)
    setting = "fuse_affine"

    def match(
        self, edit: Editor, node: Node, settings: OptimizerSettings
    ) -> Found | Refused | None:
        """Look from the cast back up to the product."""
        (top,) = edit.operands(node)
        dtype = node.results[0].dtype
        if dtype not in FLOATS or top.dtype not in FLOATS or top.dtype.bits <= dtype.bits:
            return None
        if edit.uses(top) != 1:
            return None
        chain = chain_below(edit, top)
        if not isinstance(chain.base.node.op, Cast) or edit.uses(chain.base) != 1:
            return None
        (x,) = edit.operands(chain.base.node)
        product = product_of(edit, x.node) if x.dtype is dtype else None
        if product is None or edit.uses(x) != 1:
            return None
        parts = segments(edit, chain.links, through=True)
        if len(parts) != 1 or not parts[0].steps:
            return Refused("more than one scale and one bias")
        affine = parts[0].inside
        if not affine.fits(dtype):
            return Refused(f"the scale or bias does not fit into {dtype}")
        if affine.scale is None:
            return Found(product, None, parts[0])
        weights = scaled_product(edit, product, affine.scale)
        return weights if isinstance(weights, Refused) else Found(product, weights, parts[0])

    def rewrite(self, edit: Editor, found: Found) -> Value:
        """Build the product and its bias in the narrow type."""
        x = found.product.again(edit, found.product.x, found.weights)
        x = apply_affine(edit, x, Affine(bias=found.segment.inside.bias))
        return apply_links(edit, x, found.segment.layouts)


RULES = (FuseWideAffine(),)
