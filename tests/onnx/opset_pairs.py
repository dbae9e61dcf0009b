"""Every operator in every version that changed it, and models that show what it does there.

The backend suite has models of the newest versions only. A model of one node is a model of another
version too wherever that version's schema allows it, so the suite serves most of the history.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.onnx.backend_suite import Case, all_cases

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import onnx
    from onnx import checker

__all__ = ["Pair", "Restamped", "all_pairs", "restamped"]


@dataclass(frozen=True, order=True)
class Pair:
    """An operator, and an opset version that introduced or changed it."""

    domain: str
    operator: str
    version: int

    def __str__(self) -> str:
        """Return text such as `Softmax-13`."""
        return f"{self.domain + ':' if self.domain else ''}{self.operator}-{self.version}"


def all_pairs() -> list[Pair]:
    """Return every pair of the schema history; versions that removed an operator are none."""
    history = onnx.defs.get_all_schemas_with_history()
    return sorted(Pair(s.domain, s.name, s.since_version) for s in history if not s.deprecated)


@dataclass(frozen=True)
class Restamped:
    """A case of the suite as a model of another opset version.

    Attributes:
        case: where the inputs are from.
        pair: what the model shows.
        model: it.
        same: whether it is the suite's own model, whose expected outputs hold.
    """

    case: Case
    pair: Pair
    model: onnx.ModelProto
    same: bool

    @property
    def name(self) -> str:
        """The case and the version."""
        return f"{self.case.name}-{self.pair.version}"


def restamped(cases: Iterator[Case] | None = None) -> Iterator[Restamped]:
    """Yield the models of one node of the suite in every version that allows them."""
    versions = defaultdict(list)
    for pair in all_pairs():
        versions[pair.domain, pair.operator].append(pair)
    for case in cases or all_cases():
        if case.kind != "node" or case.name.endswith("_expanded"):
            continue
        model, _ = case.load()
        if len(model.graph.node) != 1:
            continue
        node = model.graph.node[0]
        (now,) = (o.version for o in model.opset_import if o.domain == node.domain)
        own = max(p.version for p in versions[node.domain, node.op_type] if p.version <= now)
        for pair in versions[node.domain, node.op_type]:
            if pair.version == own:
                yield Restamped(case, pair, model, True)
            elif (other := _as_version(model, pair)) is not None:
                yield Restamped(case, pair, other, False)


def _as_version(model: onnx.ModelProto, pair: Pair) -> Any:
    """Return a model that imports another version, or None where that is no valid model."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for imported in other.opset_import:
        if imported.domain == pair.domain:
            imported.version = pair.version
    other.ir_version = onnx.helper.find_min_ir_version_for(list(other.opset_import), True)
    other.ir_version = max(other.ir_version, 8)
    try:
        checker.check_model(other)
    except checker.ValidationError:
        return None
    return other
