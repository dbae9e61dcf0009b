"""ai.onnx.ml: ensembles of trees, against onnxruntime and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from kn_graph.errors import MalformedModelError
from kn_graph.onnx import load_graph_from_onnx_bytes
from tests.ops.ml_nodes import assert_like_onnxruntime, ml_model, run_here, run_onnxruntime

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
MODES = ["LEQ", "LT", "GTE", "GT", "EQ", "NEQ"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def random_forest(
    rng: np.random.Generator,
    *,
    trees: int = 3,
    depth: int = 3,
    features: int = 4,
    targets: int = 2,
    modes: tuple[str, ...] = ("LEQ",),
    votes: str = "target",
    missing: bool = False,
    double: bool = False,
) -> dict[str, Any]:
    """Return attributes of a random ensemble whose leaves vote for every target.

    onnxruntime gives a target that gets no vote no base value either, against the text.
    """
    table: dict[str, list[Any]] = {
        n: [] for n in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids",
                        "falsenodeids", "missing_value_tracks_true")
    }  # fmt: skip
    ballots: dict[str, list[Any]] = {n: [] for n in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree: int, left: int) -> int:
        node = sum(t == tree for t in table["treeids"])
        leaf = left == 0 or rng.random() < 0.1
        row = {
            "treeids": tree, "nodeids": node, "featureids": int(rng.integers(features)),
            "modes": "LEAF" if leaf else f"BRANCH_{rng.choice(modes)}",
            "values": float(rng.integers(-2, 3)) / 2, "truenodeids": 0, "falsenodeids": 0,
            "missing_value_tracks_true": int(missing and rng.random() < 0.5),
        }  # fmt: skip
        at = len(table["treeids"])
        for name, x in row.items():
            table[name].append(x)
        if not leaf:
            table["truenodeids"][at] = grow(tree, left - 1)
            table["falsenodeids"][at] = grow(tree, left - 1)
            return node
        for target in range(targets):
            for name, x in zip(ballots, (tree, node, target, float(rng.normal())), strict=True):
                ballots[name].append(x)
        return node

    for tree in range(trees):
        grow(tree, depth)
    result = {f"nodes_{n}": x for n, x in table.items()}
    result |= {f"{votes}_{n}": x for n, x in ballots.items()}
    if double:
        for name in ("nodes_values", f"{votes}_weights"):
            numbers = np.array(result.pop(name), np.float64)
            result[f"{name}_as_tensor"] = numpy_helper.from_array(numbers)
    return result


def rows(rng: np.random.Generator, n: int = 20, features: int = 4, dtype: Any = np.float32) -> Any:
    x = rng.integers(-3, 4, (n, features)) / 2
    return x.astype(dtype)


@pytest.mark.parametrize("mode", [*MODES, "mixed"])
@pytest.mark.parametrize("missing", [False, True])
def test_modes_and_missing_values(mode: str, missing: bool) -> None:
    rng = np.random.default_rng(0)
    modes = tuple(MODES) if mode == "mixed" else (mode,)
    x = rows(rng)
    x[rng.random(x.shape) < 0.2] = np.nan
    forest = random_forest(rng, modes=modes, missing=missing)
    assert_like_onnxruntime("TreeEnsembleRegressor", {"x": x}, n_targets=2, **forest, **CLOSE)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("base", [False, True])
def test_aggregates(aggregate: str, targets: int, base: bool) -> None:
    rng = np.random.default_rng(1)
    forest = random_forest(rng, targets=targets, trees=5)
    if base:
        forest["base_values"] = rng.normal(size=targets).tolist()
    assert_like_onnxruntime(
        "TreeEnsembleRegressor", {"x": rows(rng)}, n_targets=targets,
        aggregate_function=aggregate, **forest, **CLOSE,
    )  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_regressors(transform: str) -> None:
    rng = np.random.default_rng(2)
    forest = random_forest(rng, targets=3)
    if transform == "PROBIT":
        forest["target_weights"] = (np.abs(np.tanh(forest["target_weights"])) / 4).tolist()
    assert_like_onnxruntime(
        "TreeEnsembleRegressor", {"x": rows(rng)}, n_targets=3, post_transform=transform,
        **forest, **CLOSE,
    )  # fmt: skip


@pytest.mark.parametrize("double", [False, True])
def test_double_rows(double: bool) -> None:
    rng = np.random.default_rng(3)
    forest = random_forest(rng, double=double)
    x = rows(rng, dtype=np.float64)
    assert_like_onnxruntime("TreeEnsembleRegressor", {"x": x}, n_targets=2, **forest, **CLOSE)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_integer_rows(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    forest = random_forest(rng, votes="class")
    x = rows(rng).astype(dtype)
    forest["classlabels_int64s"] = [0, 1]
    model = ml_model("TreeEnsembleClassifier", {"x": x}, ("y", "z"), **forest)
    scores, expected = (run(model, {"x": x})[1] for run in (run_here, run_onnxruntime))
    np.testing.assert_allclose(scores, expected, **CLOSE)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_a_target_without_votes_has_its_base_value(aggregate: str) -> None:
    rng = np.random.default_rng(13)
    forest = random_forest(rng, targets=1) | {"base_values": [1.0, 2.5]}
    x = rows(rng)
    model = ml_model(
        "TreeEnsembleRegressor", {"x": x}, n_targets=2, aggregate_function=aggregate, **forest
    )
    assert (run_here(model, {"x": x})[0][:, 1] == 2.5).all()


def test_double_thresholds_are_compared_exactly() -> None:
    value = 1 + 2.0**-40
    stump: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LT", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "nodes_values_as_tensor": numpy_helper.from_array(np.array([value, 0, 0])),
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights_as_tensor": numpy_helper.from_array(np.array([1.0, 2.0])),
    }  # fmt: skip
    for dtype, expected in ((np.float64, [1, 2, 2]), (np.float32, [1, 1, 2])):
        x = np.array([[1], [value], [1.5]]).astype(dtype)
        model = ml_model("TreeEnsembleRegressor", {"x": x}, **stump)
        assert run_here(model, {"x": x})[0].ravel().tolist() == expected


@pytest.mark.parametrize("labels", ["classlabels_int64s", "classlabels_strings"])
@pytest.mark.parametrize("transform", TRANSFORMS[:4])
@pytest.mark.parametrize("base", [False, True])
def test_classifier_of_several_classes(labels: str, transform: str, base: bool) -> None:
    rng = np.random.default_rng(4)
    forest = random_forest(rng, votes="class", targets=3, trees=8)
    if base:
        forest["base_values"] = rng.normal(size=3).tolist()
    forest[labels] = [7, 3, 5] if labels == "classlabels_int64s" else ["a", "b", "c"]
    x = rows(rng)
    assert_like_onnxruntime(
        "TreeEnsembleClassifier", {"x": x}, ("y", "z"), post_transform=transform, **forest, **CLOSE
    )


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMS[:4])
def test_classifier_with_votes_for_one_of_two_classes(
    positive: bool, base: bool, transform: str
) -> None:
    rng = np.random.default_rng(5)
    forest = random_forest(rng, votes="class", targets=1, trees=4)
    if positive:
        forest["class_weights"] = (np.abs(forest["class_weights"]) / 8).tolist()
    if base:
        forest["base_values"] = [0.25]
    forest["classlabels_strings"] = ["no", "yes"]
    assert_like_onnxruntime(
        "TreeEnsembleClassifier", {"x": rows(rng)}, ("y", "z"), post_transform=transform,
        **forest, **CLOSE,
    )  # fmt: skip


def test_classifier_with_votes_for_both_classes_takes_the_larger_score() -> None:
    rng = np.random.default_rng(6)
    forest = random_forest(rng, votes="class", targets=2, trees=8)
    forest["classlabels_int64s"] = [10, 20]
    x = rows(rng)
    model = ml_model("TreeEnsembleClassifier", {"x": x}, ("y", "z"), **forest)
    label, scores = run_here(model, {"x": x})
    np.testing.assert_array_equal(label, np.array([10, 20])[scores.argmax(1)])
    assert set(label.tolist()) == {10, 20}


LIST_FORM: dict[str, Any] = {
    "n_targets": 2,
    "nodes_featureids": [0, 0, 1],
    "nodes_splits": numpy_helper.from_array(np.array([0.5, -0.5, 1.5])),
    "nodes_modes": numpy_helper.from_array(np.array([0, 1, 2], np.uint8)),
    "nodes_truenodeids": [1, 0, 2],
    "nodes_falsenodeids": [2, 1, 3],
    "nodes_trueleafs": [0, 1, 1],
    "nodes_falseleafs": [0, 1, 1],
    "leaf_weights": numpy_helper.from_array(np.array([5.0, 12.0, -20.0, 3.25])),
    "leaf_targetids": [0, 1, 0, 1],
    "tree_roots": [0],
}


X5 = np.array([[-1, 0], [0, 0], [1, 1], [1, 2], [0.5, 0]])


@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("transform", [0, 3])
def test_tree_ensemble(aggregate: int, transform: int) -> None:
    assert_like_onnxruntime(
        "TreeEnsemble", {"x": X5}, version=5, aggregate_function=aggregate,
        post_transform=transform, **LIST_FORM, **CLOSE,
    )  # fmt: skip


def test_tree_ensemble_numbers_its_transforms_as_the_text_does() -> None:
    # onnxruntime takes 1 for LOGISTIC and 2 for SOFTMAX
    def scores(transform: int) -> Any:
        model = ml_model(
            "TreeEnsemble", {"x": X5}, version=5, post_transform=transform, **LIST_FORM
        )
        return run_here(model, {"x": X5})[0]

    raw = scores(0)
    powers = np.exp(raw - raw.max(1, keepdims=True))
    np.testing.assert_allclose(scores(1), powers / powers.sum(1, keepdims=True))
    np.testing.assert_allclose(scores(2), 1 / (1 + np.exp(-raw)))


def members_model(x: Any, values: Any, modes: list[int], **changes: Any) -> bytes:
    dtype = x.dtype
    attributes = {
        "n_targets": 1, "nodes_featureids": [0, 0], "nodes_truenodeids": [0, 1],
        "nodes_splits": numpy_helper.from_array(np.array([0, 7], dtype)),
        "nodes_modes": numpy_helper.from_array(np.array(modes, np.uint8)),
        "nodes_falsenodeids": [1, 2], "nodes_trueleafs": [1, 1], "nodes_falseleafs": [0, 1],
        "leaf_weights": numpy_helper.from_array(np.array([1, 2, 3], dtype)),
        "leaf_targetids": [0, 0, 0], "tree_roots": [0],
        "membership_values": numpy_helper.from_array(np.array(values, dtype)), **changes,
    }  # fmt: skip
    return ml_model("TreeEnsemble", {"x": x}, version=5, **attributes)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_set_membership(dtype: Any) -> None:
    nan = np.nan
    x = np.array([[1.5], [4], [7], [8], [nan]], dtype)
    one = members_model(x, [1.5, 4, 9, nan], [6, 4])
    assert run_here(one, {"x": x})[0].ravel().tolist() == [1, 1, 2, 3, 3]
    tracked = members_model(x, [4, nan], [6, 4], nodes_missing_value_tracks_true=[1, 0])
    assert run_here(tracked, {"x": x})[0].ravel().tolist() == [3, 1, 2, 3, 1]
    two = members_model(x, [4, nan, 7, 8], [6, 6])
    assert run_here(two, {"x": x})[0].ravel().tolist() == [3, 1, 2, 2, 3]
    empty = members_model(x, [nan, 8, nan], [6, 6])
    assert run_here(empty, {"x": x})[0].ravel().tolist() == [3, 3, 3, 2, 3]


@pytest.mark.parametrize("count", [0, 1, 7])
def test_any_number_of_rows_and_a_lone_leaf(count: int) -> None:
    rng = np.random.default_rng(7)
    x = rows(rng, count)
    leaf = {
        "nodes_treeids": [0], "nodes_nodeids": [0], "nodes_featureids": [0],
        "nodes_modes": ["LEAF"], "nodes_values": [0.0], "nodes_truenodeids": [0],
        "nodes_falsenodeids": [0], "target_treeids": [0], "target_nodeids": [0],
        "target_ids": [0], "target_weights": [2.5],
    }  # fmt: skip
    for forest in (leaf, random_forest(rng, targets=1, depth=1)):
        (y,) = run_here(ml_model("TreeEnsembleRegressor", {"x": x}, **forest), {"x": x})
        assert y.shape == (count, 1)
        assert forest is not leaf or (y == 2.5).all()


WRONG_TREES: list[tuple[dict[str, Any], str]] = [
    ({"nodes_featureids": [0, 0, 9]}, "feature 9 does not exist"),
    ({"nodes_falsenodeids": [2, 1, 30]}, "child -31 does not exist"),
    ({"nodes_truenodeids": [0, 0, 2]}, "contains a cycle"),
    ({"leaf_targetids": [0, 1, 0, 5]}, "target 5 does not exist"),
    ({"tree_roots": [4]}, "root 4 does not exist"),
    ({"nodes_trueleafs": [0, 1]}, "differ in length"),
    ({"aggregate_function": 4}, "aggregate_function 4"),
    ({"nodes_modes": numpy_helper.from_array(np.array([6, 1, 2], np.uint8))}, "0 sets of members"),
]


@pytest.mark.parametrize(("changes", "text"), WRONG_TREES, ids=str)
def test_broken_trees_are_refused(changes: dict[str, Any], text: str) -> None:
    model = ml_model("TreeEnsemble", {"x": np.zeros((1, 2))}, version=5, **LIST_FORM | changes)
    with pytest.raises(MalformedModelError, match=text):
        load_graph_from_onnx_bytes(model)
