"""Estimators of scikit-learn, LightGBM and XGBoost as their converters write them.

Estimators that skl2onnx exports with their default arguments are fitted, exported and run; results
are compared with onnxruntime's, and text pipelines with scikit-learn itself. Run with
`pytest -m sklearn`; what is not installed is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kn_runtime
from kn_graph.errors import ShapeError

pytestmark = [
    pytest.mark.sklearn,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

DEVICES = ("reference", "cpu")
ROWS = 40
CONTRADICTING = {"KNNImputer"}
"""Exported with a branch that no data reach, and whose shapes contradict each other."""


def samples(kind: str) -> tuple[Any, Any]:
    """Return features and what is to be learnt from them."""
    from sklearn.datasets import make_classification, make_regression

    if kind == "regressor":
        x, y = make_regression(120, 8, random_state=0)
        return x.astype(np.float32) / 3, y
    x, y = make_classification(120, 8, n_informative=5, n_classes=3, random_state=0)
    return x.astype(np.float32), y


def made(name: str) -> Any:
    """Return a small estimator, around others where it needs some."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier
    from sklearn.utils import all_estimators

    cls: Any = dict(all_estimators())[name]
    tree = DecisionTreeClassifier(max_depth=3)
    given: list[dict[str, Any]] = [
        {},
        {"estimator": LogisticRegression()},
        {"estimator": Ridge()},
        {"estimators": [("a", LogisticRegression()), ("b", tree)]},
        {"transformer_list": [("a", StandardScaler())]},
    ]
    for arguments in given:
        with suppress(TypeError):
            estimator = cls(**arguments)
            small = {"n_estimators": 8, "max_iter": 50, "random_state": 0, "n_components": 3}
            known = estimator.get_params(deep=False)
            return estimator.set_params(**{k: v for k, v in small.items() if k in known})
    raise AssertionError(f"{name} needs other arguments")


def fitted(name: str) -> tuple[Any, Any]:
    """Return a fitted estimator and rows to run it on."""
    from sklearn.base import is_regressor

    estimator = made(name)
    x, y = samples("regressor" if is_regressor(estimator) else "classifier")
    if "MultiTask" in name or name in ("MultiOutputRegressor", "MultiOutputClassifier"):
        y = np.stack([y, y[::-1]], 1)
    if name.startswith(("PLS", "CCA")):
        y = y[:, None]
    if any(word in name for word in ("NB", "NMF", "Latent", "Chi2")):
        x = np.abs(x)
    return estimator.fit(x, y), x[:ROWS]


def exported(estimator: Any, x: Any) -> Any:
    """Export, without maps where the estimator can: not all classifiers have the option."""
    import skl2onnx
    from sklearn.base import is_classifier

    if is_classifier(estimator):
        with suppress(NameError):
            return skl2onnx.to_onnx(estimator, x[:1], options={id(estimator): {"zipmap": False}})
    return skl2onnx.to_onnx(estimator, x[:1])


def by_onnxruntime(proto: Any, x: Any) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    results: list[Any] = session.run(None, {session.get_inputs()[0].name: x})
    return results


def flat(results: Any) -> list[Any]:
    """Return the arrays among results; maps of scores as arrays of keys and of scores."""
    out: list[Any] = []
    for x in results:
        if isinstance(x, np.ndarray):
            out.append(x)
        elif isinstance(x[0], dict):
            out += [np.array([list(m) for m in x]), np.array([list(m.values()) for m in x])]
        else:
            out += flat(x)
    return out


def agree(proto: Any, x: Any) -> None:
    """Run on both devices and compare with onnxruntime: labels exactly, scores nearly."""
    expected = by_onnxruntime(proto, x)
    for device in DEVICES:
        got = list(kn_runtime.load(proto, device).eval([x]).values())
        for a, b in zip(flat(got), flat(expected), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            if b.dtype.kind == "f":
                limit = 1e-4 * max(1.0, float(np.nanmax(np.abs(b), initial=0)))
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=limit)
            else:
                np.testing.assert_array_equal(a, b)


EXPORTED = Path(__file__).with_name("sklearn_estimators.txt").read_text().split()
"""What skl2onnx 1.20 exports and onnxruntime runs, fitted to a table of numbers."""


@pytest.mark.parametrize("name", EXPORTED)
def test_estimators_of_scikit_learn(name: str) -> None:
    pytest.importorskip("skl2onnx")
    estimator, x = fitted(name)
    proto = exported(estimator, x)
    if name in CONTRADICTING:
        with pytest.raises(ShapeError, match="updates are float32"):
            agree(proto, x)
        return
    agree(proto, x)


# ---- texts ----------------------------------------------------------------------------------

TEXTS = ["This is the first document", "this DOCUMENT is the second document", "And the third one"]
TEXTS += ["Is this it?", "", "xx yy zz"]
"""Without words of one letter, which the converter keeps and scikit-learn drops."""


VECTORIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "counts": ("CountVectorizer", {}),
    "pairs": ("TfidfVectorizer", {"ngram_range": (1, 2)}),
    "characters": ("TfidfVectorizer", {"analyzer": "char", "ngram_range": (2, 3)}),
    "stop words": ("TfidfVectorizer", {"stop_words": ["the"], "token_pattern": "[a-zA-Z]+"}),
    "binary": ("CountVectorizer", {"binary": True, "lowercase": False}),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", VECTORIZERS)
def test_texts_are_counted_as_scikit_learn_does(name: str, device: str) -> None:
    skl2onnx: Any = pytest.importorskip("skl2onnx")
    from sklearn.feature_extraction import text

    cls, arguments = VECTORIZERS[name]
    vectorizer = getattr(text, cls)(**arguments).fit(TEXTS)
    strings = skl2onnx.common.data_types.StringTensorType([None, 1])
    proto = skl2onnx.to_onnx(vectorizer, initial_types=[("x", strings)])
    rows = np.array([[t] for t in TEXTS], object)
    (got,) = kn_runtime.load(proto, device).eval([rows]).values()
    np.testing.assert_allclose(got, vectorizer.transform(TEXTS).toarray(), rtol=1e-5, atol=1e-6)


# ---- gradient boosting ----------------------------------------------------------------------


def boosted(package: str, cls: str, arguments: dict[str, Any], classes: int) -> tuple[Any, Any]:
    """Return a fitted estimator of LightGBM or XGBoost, and the rows it was fitted to."""
    module: Any = pytest.importorskip(package)
    pytest.importorskip("sklearn")
    x, y = samples("classifier" if classes else "regressor")
    y = y % classes if classes else np.abs(y)
    return getattr(module, cls)(n_estimators=10, **arguments).fit(x, y), x


QUIET = {"verbose": -1}
BOOSTED: list[tuple[str, str, dict[str, Any], int]] = [
    ("lightgbm", "LGBMClassifier", QUIET, 2),
    ("lightgbm", "LGBMClassifier", QUIET, 3),
    (
        "lightgbm",
        "LGBMClassifier",
        {**QUIET, "boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5},
        2,
    ),
    ("lightgbm", "LGBMRegressor", QUIET, 0),
    ("lightgbm", "LGBMRegressor", {**QUIET, "objective": "poisson"}, 0),
    ("xgboost", "XGBClassifier", {}, 2),
    ("xgboost", "XGBClassifier", {}, 3),
    ("xgboost", "XGBRFClassifier", {}, 3),
    ("xgboost", "XGBRegressor", {}, 0),
    ("xgboost", "XGBRegressor", {"objective": "count:poisson"}, 0),
]


@pytest.mark.parametrize(("package", "cls", "arguments", "classes"), BOOSTED, ids=str)
def test_gradient_boosting(package: str, cls: str, arguments: dict[str, Any], classes: int) -> None:
    tools: Any = pytest.importorskip("onnxmltools")
    estimator, x = boosted(package, cls, arguments, classes)
    convert: Callable[..., Any] = getattr(tools.convert, f"convert_{package}")
    types = [("x", tools.convert.common.data_types.FloatTensorType([None, x.shape[1]]))]
    x = np.where(np.arange(x.size).reshape(x.shape) % 13, x, np.float32("nan"))  # missing values
    agree(convert(estimator, initial_types=types, target_opset=15), x)
