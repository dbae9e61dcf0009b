"""Every version of every operator: there is a converter, and old forms mean what new ones do.

What a version does is shown three ways: by models of the backend suite under other versions
(`test_opset_history.py`), by the table here, and by the tests named in `SHOWN_BY`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from kn_graph.onnx.functions import has_schema_function
from kn_graph.onnx.registry import all_converters, find_converter
from tests.onnx.opset_pairs import Pair, all_pairs, restamped
from tests.ops.single_node import assert_same, node_model, run_here

PAIRS = all_pairs()
F32 = np.float32


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_every_version_of_every_operator_is_supported(pair: Pair) -> None:
    found = find_converter(pair.domain, pair.operator, pair.version)
    assert found or has_schema_function(pair.domain, pair.operator, pair.version)


def test_converters_change_where_the_standard_does() -> None:
    versions = defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():  # those that removed one, too
        versions[schema.domain, schema.name].add(schema.since_version)
    for c in all_converters():
        known = versions.get((c.domain, c.operator))
        if known:  # others are not in the onnx package
            assert c.since in known | {1}, c
            assert c.until + 1 in known or c.until >= max(known), c


# ---- old forms ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Old:
    """A node of an old version, and one of a newer version that does the same.

    Attributes:
        operator: of both, unless `new_operator` is given.
        versions: in which the old form is valid.
        inputs: of the old one.
        attributes: of the old one.
        more: inputs of the new one that the old one has as attributes.
        new: attributes of the new one.
        new_version: of the new one.
        new_operator: of the new one.
        leave: inputs of the old one that the new one does not have.
    """

    operator: str
    versions: tuple[int, ...]
    inputs: dict[str, Any]
    attributes: dict[str, Any]
    more: dict[str, Any] = field(default_factory=dict)
    new: dict[str, Any] = field(default_factory=dict)
    new_version: int = 21
    new_operator: str = ""
    leave: tuple[str, ...] = ()


def i64(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(3).normal(size=shape).astype(F32)


X, IMAGE = numbers(2, 3, 4), numbers(1, 2, 4, 6)
SLOPE = numbers(3)
SCALES = np.array([1, 1, 2, 3], F32)
STATISTICS = {n: np.abs(numbers(2)) + i for i, n in enumerate(("scale", "bias", "mean", "var"))}
BOXES = {
    "rois": np.array([[0, 0, 3, 3], [1, 0, 5, 2]], F32),
    "batch_indices": i64(0, 0),
}
ROI = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Mean", "SumSquare")

OLD = [
    *(
        Old(
            f"Reduce{name}",
            (1, 11, 13) if name != "Sum" else (1, 11),
            {"x": np.abs(X)},
            {"axes": [0, 2], "keepdims": keep},
            {"axes": i64(0, 2)},
            {"keepdims": keep},
        )
        for name in (*REDUCTIONS, "Sum")
        for keep in (0, 1)
    ),
    Old("ReduceMean", (11, 13), {"x": X}, {"axes": [-1]}, {"axes": i64(-1)}),
    Old("ReduceMax", (1, 11, 12, 13), {"x": X}, {"axes": [1]}, {"axes": i64(1)}),
    Old("ReduceSum", (1, 11), {"x": X}, {}, {}),
    Old("Squeeze", (1, 11), {"x": X[:, :1]}, {"axes": [1]}, {"axes": i64(1)}),
    Old("Squeeze", (11,), {"x": X[:, :1]}, {"axes": [-2]}, {"axes": i64(-2)}),
    Old("Unsqueeze", (1, 11), {"x": X}, {"axes": [0, 3]}, {"axes": i64(0, 3)}),
    Old("Unsqueeze", (11,), {"x": X}, {"axes": [-1]}, {"axes": i64(-1)}),
    Old(
        "Slice",
        (1,),
        {"x": X},
        {"starts": [1, -3], "ends": [9, -1], "axes": [1, 2]},
        {"starts": i64(1, -3), "ends": i64(9, -1), "axes": i64(1, 2)},
    ),
    Old(
        "Slice",
        (1,),
        {"x": X},
        {"starts": [0, 1], "ends": [1, 3]},
        {"starts": i64(0, 1), "ends": i64(1, 3)},
    ),
    Old(
        "Reshape", (1,), {"x": X}, {"shape": [0, -1], "consumed_inputs": [0]}, {"shape": i64(0, -1)}
    ),
    Old(
        "Tile",
        (1,),
        {"x": X, "tiles": i64(3), "axis": i64(1)},
        {},
        {"n": i64(1, 3, 1)},
        leave=("tiles", "axis"),
    ),
    Old("TopK", (1,), {"x": X}, {"k": 2, "axis": 1}, {"k": i64(2)}, {"axis": 1}),
    Old(
        "Pad",
        (1,),
        {"x": X},
        {"paddings": [0, 1, 0, 2, 0, 1], "value": 0.5},
        {"pads": i64(0, 1, 0, 2, 0, 1), "value": F32(0.5)},
    ),
    Old(
        "Pad",
        (2,),
        {"x": X},
        {"pads": [0, 1, 0, 1, 0, 2], "mode": "reflect"},
        {"pads": i64(0, 1, 0, 1, 0, 2)},
        {"mode": "reflect"},
    ),
    Old("Pad", (2,), {"x": X}, {"pads": [0, -1, 0, 1, 0, -2]}, {"pads": i64(0, -1, 0, 1, 0, -2)}),
    Old("Clip", (1, 6), {"x": X}, {"min": -0.5, "max": 0.25}, {"min": F32(-0.5), "max": F32(0.25)}),
    Old("Clip", (1, 6), {"x": X}, {"max": 0.25}, {"min": None, "max": F32(0.25)}),
    Old("Clip", (1, 6), {"x": X}, {}),
    Old(
        "PRelu",
        (1, 6, 7),  # 7 broadcasts to the right, unless that cannot be: files of MXNet
        {"x": X, "slope": SLOPE},
        {},
        {"s": SLOPE[:, None]},
        leave=("slope",),
    ),
    Old(
        "PRelu", (7, 9, 16), {"x": X[:, :, :3], "slope": SLOPE}, {}, {"s": SLOPE}, leave=("slope",)
    ),
    Old("Cast", (1,), {"x": X * 3}, {"to": "INT32"}, {}, {"to": TensorProto.INT32}),
    Old(
        "DepthToSpace",
        (1,),
        {"x": numbers(1, 8, 2, 3)},
        {"blocksize": 2},
        {},
        {"blocksize": 2, "mode": "DCR"},
    ),
    Old(
        "LpPool",
        (1,),
        {"x": IMAGE},
        {"kernel_shape": [2, 2], "p": 3.0},
        {},
        {"kernel_shape": [2, 2], "p": 3},
    ),
    Old("GlobalLpPool", (1,), {"x": IMAGE}, {"p": 3.0}, {}, {"p": 3}, 22),
    Old("GlobalLpPool", (2, 22), {"x": IMAGE}, {"p": 1}, {"axes": i64(2, 3)}, {}, 18, "ReduceL1"),
    Old(
        "BatchNormalization",
        (1,),
        {"x": IMAGE, **STATISTICS},
        {"consumed_inputs": [0, 0, 0, 1, 1], "is_test": 1},
    ),
    Old(
        "Upsample",
        (1,),
        {"x": IMAGE},
        {"height_scale": 2.0, "width_scale": 3.0},
        {"roi": None, "scales": SCALES},
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        11,
        "Resize",
    ),
    Old(
        "Upsample",
        (7,),
        {"x": IMAGE},
        {"scales": SCALES.tolist(), "mode": "linear"},
        {"roi": None, "scales": SCALES},
        {"coordinate_transformation_mode": "asymmetric", "mode": "linear"},
        19,
        "Resize",
    ),
    Old(
        "Resize",
        (10,),
        {"x": IMAGE, "scales": SCALES},
        {"mode": "linear"},
        {"roi": None, "s": SCALES},
        {"coordinate_transformation_mode": "asymmetric", "mode": "linear"},
        19,
        leave=("scales",),
    ),
    Old(
        "Resize",
        (11,),
        {"x": IMAGE, "roi": np.zeros(0, F32), "scales": SCALES},
        {"mode": "cubic"},
        {},
        {"mode": "cubic"},
        19,
    ),
    Old(
        "RoiAlign",
        (10,),
        {"x": IMAGE, **BOXES},
        ROI,
        {},
        {**ROI, "coordinate_transformation_mode": "output_half_pixel"},
        16,
    ),
]


@pytest.mark.parametrize(
    ("old", "version"),
    [(old, version) for old in OLD for version in old.versions],
    ids=lambda x: x.operator if isinstance(x, Old) else str(x),
)
def test_old_forms_do_what_new_ones_do(old: Old, version: int) -> None:
    given = {n: a for n, a in old.inputs.items() if a is not None}
    outputs = ("y", "z") if old.operator == "TopK" else ("y",)
    constant = [n for n in given if n != "x" and old.operator == "Tile"]
    model = node_model(
        old.operator, given, outputs, opset=version, constant=constant, **old.attributes
    )
    got = run_here(model, given)
    inputs = {n: a for n, a in old.inputs.items() if n not in old.leave} | old.more
    fixed = [n for n, a in old.more.items() if a is not None]
    operator = old.new_operator or old.operator
    options = {"opset": old.new_version, "constant": fixed, **old.new}
    expected = run_here(node_model(operator, inputs, outputs, **options), inputs)
    assert_same(got, expected)


# ---- completeness ---------------------------------------------------------------------------

SHOWN_BY = {
    "Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike": (
        "tests/ops/test_random.py, by distribution"
    ),
    "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceLength": (
        "tests/ops/test_sequence.py; there is one version"
    ),
    "Optional": "tests/ops/test_sequence.py",
    "Loop": "tests/ops/test_control_loops.py, version 1",
    "MaxRoiPool": "tests/ops/test_sample.py",
    "Gradient": "tests/ops/test_gradient.py; there is one version",
}
"""Operators with versions that neither the suite nor the table shows, and what does.

Those of ai.onnx.ml are in tests/ops/test_ml.py, test_ml_linear.py and test_ml_tree.py.
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_version_is_shown_by_some_test() -> None:
    shown = {made.pair for made in restamped()}
    shown |= {Pair("", old.operator, version) for old in OLD for version in old.versions}
    elsewhere = {operator for names in SHOWN_BY for operator in names.split()}
    missing = {p for p in PAIRS if p not in shown and p.domain != "ai.onnx.ml"}
    assert {p.operator for p in missing} == elsewhere, sorted(map(str, missing))
