"""ai.onnx.ml: linear models, support vector machines, pipelines; compared with onnxruntime."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from kn_graph.graph import Graph
from kn_graph.onnx import load_graph_from_onnx_bytes
from kn_graph.ops.coupling import PairwiseCoupling
from kn_graph.reference import cpu_eval_graph
from tests.ops.ml_nodes import assert_like_onnxruntime, ml_model, run_here, run_onnxruntime

CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]

LINEAR: dict[str, Any] = {
    "coefficients": [1.0, -2.0, 0.5, 1.0, 3.0, -1.0],
    "intercepts": [0.5, -1.0],
}
X2 = np.array([[0.1, 0.2, 0.3], [-1, 0.5, 2], [0, 0, 0]], np.float32)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(
    "labels", [{"classlabels_ints": [3, 8]}, {"classlabels_strings": ["a", "b"]}]
)
@pytest.mark.parametrize("one", [False, True])
def test_linear_classifier(transform: str, labels: dict[str, Any], one: bool) -> None:
    weights = {"coefficients": [1.0, -2.0, 0.5], "intercepts": [0.25]} if one else LINEAR
    assert_like_onnxruntime(
        "LinearClassifier", {"x": X2}, ("y", "z"), post_transform=transform, **weights, **labels,
        **CLOSE,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
def test_linear_classifier_takes_other_types(dtype: Any) -> None:
    x = (X2 * 10).astype(dtype)
    assert_like_onnxruntime(
        "LinearClassifier", {"x": x}, ("y", "z"), classlabels_ints=[1, 2], **LINEAR, **CLOSE
    )


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_regressor(transform: str) -> None:
    assert_like_onnxruntime(
        "LinearRegressor", {"x": X2}, targets=2, post_transform=transform, **LINEAR, **CLOSE
    )


def test_a_transform_of_one_target_is_applied_as_the_text_says() -> None:
    model = ml_model(
        "LinearRegressor", {"x": X2}, coefficients=[1.0, 2.0, 3.0], post_transform="LOGISTIC"
    )
    expected = 1 / (1 + np.exp(-(X2 @ np.array([1, 2, 3], np.float32))))
    np.testing.assert_allclose(run_here(model, {"x": X2})[0][:, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("p", [0.001, 0.3, 0.5, 0.7, 0.999])
def test_probit_is_near_the_inverse_normal_distribution(p: float) -> None:
    from statistics import NormalDist

    x = np.array([[p]], np.float32)
    model = ml_model("LinearRegressor", {"x": x}, coefficients=[1.0], post_transform="PROBIT")
    (y,) = run_here(model, {"x": x})
    np.testing.assert_allclose(y, run_onnxruntime(model, {"x": x})[0], rtol=1e-4, atol=1e-6)
    assert abs(y.item() - NormalDist().inv_cdf(p)) < 1e-2


# ---- support vector machines --------------------------------------------------------------------

KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


def machine(classes: int, kernel: str, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(8)
    counts = [2, 3, 1, 2][:classes]
    pairs = classes * (classes - 1) // 2
    return {
        "classlabels_ints": [4, 2, 9, 1][:classes], "vectors_per_class": counts,
        "support_vectors": rng.normal(size=sum(counts) * 3).tolist(),
        "coefficients": rng.normal(size=sum(counts) * (classes - 1)).tolist(),
        "rho": rng.normal(size=pairs).tolist(), "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 3.0], **more,
    }  # fmt: skip


def probabilities(classes: int) -> dict[str, Any]:
    rng = np.random.default_rng(9)
    pairs = classes * (classes - 1) // 2
    return {
        "prob_a": (-np.abs(rng.normal(size=pairs))).tolist(),
        "prob_b": rng.normal(size=pairs).tolist(),
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("probable", [False, True])
def test_svm_classifier(kernel: str, classes: int, probable: bool) -> None:
    x = np.random.default_rng(10).normal(size=(12, 3)).astype(np.float32)
    attributes = machine(classes, kernel, **(probabilities(classes) if probable else {}))
    assert_like_onnxruntime(
        "SVMClassifier", {"x": x}, ("y", "z"), **attributes, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [2, 3])
def test_transforms_of_svm_classifiers(transform: str, classes: int) -> None:
    attributes = machine(classes, "RBF", post_transform=transform)
    assert_like_onnxruntime("SVMClassifier", {"x": X2}, ("y", "z"), **attributes, **CLOSE)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel: str, one_class: int) -> None:
    rng = np.random.default_rng(11)
    x = rng.normal(size=(6, 3)).astype(np.float32)
    attributes = {
        "n_supports": 4, "support_vectors": rng.normal(size=12).tolist(), "rho": [0.125],
        "coefficients": rng.normal(size=4).tolist(), "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 2.0], "one_class": one_class,
    }  # fmt: skip
    assert_like_onnxruntime("SVMRegressor", {"x": x}, **attributes, **CLOSE)


def test_machines_without_vectors_are_linear() -> None:
    assert_like_onnxruntime(
        "SVMRegressor", {"x": X2}, coefficients=[1.0, 2.0, 3.0], rho=[0.5],
        kernel_params=[0.0, 0, 0], **CLOSE,
    )  # fmt: skip
    assert_like_onnxruntime(
        "SVMClassifier", {"x": X2}, ("y", "z"), classlabels_ints=[5, 6, 7], rho=[0.25],
        coefficients=[1.0, 2, 3, -1, 0, 1, 0.5, 0.5, -2], kernel_params=[0.0, 0, 0], **CLOSE,
    )  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_coupling_recovers_probabilities_that_fit(classes: int) -> None:
    rng = np.random.default_rng(12)
    p = rng.dirichlet(np.ones(classes) * 3, size=20)
    i, j = np.triu_indices(classes, 1)
    graph = Graph()
    r = graph.input("r", "float64", ["n", len(i)])
    graph.output("p", graph.push(PairwiseCoupling(classes), r))
    got = cpu_eval_graph(graph, {"r": p[:, i] / (p[:, i] + p[:, j])})["p"]
    np.testing.assert_allclose(got.sum(1), 1, rtol=1e-9)
    np.testing.assert_allclose(got, p, atol=0.02)


# ---- pipelines ----------------------------------------------------------------------------------


def pipelines() -> list[Any]:
    from sklearn import ensemble, linear_model, neighbors, preprocessing, svm
    from sklearn.pipeline import make_pipeline

    return [
        ensemble.RandomForestClassifier(5, max_depth=4, random_state=0),
        ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0),
        ensemble.HistGradientBoostingClassifier(max_iter=4, random_state=0),
        ensemble.GradientBoostingRegressor(n_estimators=4, random_state=0),
        ensemble.RandomForestRegressor(5, max_depth=4, random_state=0),
        make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
        make_pipeline(preprocessing.Normalizer(), svm.SVC(probability=True, random_state=0)),
        make_pipeline(preprocessing.MinMaxScaler(), svm.SVC()),
        svm.SVR(),
        svm.OneClassSVM(),
        neighbors.KNeighborsClassifier(3),
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("index", range(11))
def test_scikit_learn_pipelines(index: int, classes: int) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.datasets import make_classification

    x, y = make_classification(
        120, 6, n_informative=4, n_classes=classes, random_state=index, n_clusters_per_class=1
    )
    x = x.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = pipelines()[index].fit(x, y)
        try:
            proto = skl2onnx.to_onnx(model, x[:1], target_opset={"": 21, "ai.onnx.ml": 3})
        except Exception as error:
            pytest.skip(f"skl2onnx does not export this: {str(error)[:80]}")
    data = proto.SerializeToString()
    got = list(cpu_eval_graph(load_graph_from_onnx_bytes(data), [x]).values())
    expected = run_onnxruntime(data, {proto.graph.input[0].name: x})
    for a, b in zip(got, expected, strict=True):
        if isinstance(b, list):
            assert [list(d) for d in a] == [list(d) for d in b]
            a, b = (np.array([list(d.values()) for d in m]) for m in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        got[0].ravel(), np.asarray(model.predict(x)).ravel(), rtol=1e-3, atol=1e-3
    )
