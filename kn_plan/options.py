"""Which mechanisms of the planner are on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PlanOptions"]


@dataclass(frozen=True)
class PlanOptions:
    """Flags of the planner; none of them changes a result by more than rounding.

    Attributes:
        expand: write operations that have no kernel as others (`kn_plan.expand`).
        fold_constants: compute what depends on constants alone when the plan is made.
        fuse_scalars: compute chains of elementwise operations in one pass.
        merge_single: carry out programs of one element together that follow from one another.
        fuse_epilogues: apply them to the result of a product or reduction before it is stored.
        choose_formats: store a value in the order of axes that its readers want.
        reuse_memory: let buffers that live at different times share memory.
        in_place: write a result over an operand that is read for the last time.
        split_views: compute over the axes in front of a view where that saves a copy.
        view_outputs: give the caller a result under other sizes as it lies, without a copy.
    """

    expand: bool = True
    fold_constants: bool = True
    fuse_scalars: bool = True
    merge_single: bool = True
    fuse_epilogues: bool = True
    choose_formats: bool = True
    reuse_memory: bool = True
    in_place: bool = True
    split_views: bool = True
    view_outputs: bool = True
