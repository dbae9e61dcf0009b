"""What is wrong with a plan."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Fault"]


@dataclass(frozen=True)
class Fault:
    """One thing.

    Attributes:
        rule: which rule is broken; see `kn_plan.check`.
        step: the number of the step; None for the plan as a whole.
        label: the ONNX node that the step stands for.
        text: what is wrong.
    """

    rule: str
    step: int | None
    label: str
    text: str

    def __str__(self) -> str:
        """Return one line."""
        where = "" if self.step is None else f"step {self.step} ({self.label}): "
        return f"{self.rule}: {where}{self.text}"
