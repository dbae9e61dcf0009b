"""The ONNX backend suite that ships inside the `onnx` package, as cases to run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.loader import load_model_tests
    from onnx.backend.test.runner import Runner

KINDS = ("node", "simple", "real", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class Case:
    """One test: a model and data sets of (inputs, expected outputs)."""

    kind: str
    name: str
    case: Any

    def load(self) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
        """Return the model and its data."""
        if self.case.model is not None:
            return self.case.model, [
                ([as_value(x) for x in given], [as_value(x) for x in expected])
                for given, expected in self.case.data_sets
            ]
        if self.case.model_dir is None:
            return self._load_light()
        model = onnx.load(f"{self.case.model_dir}/model.onnx")
        sets = []
        for folder in sorted(Path(self.case.model_dir).glob("test_data_set_*")):
            given = _read_all(folder, "input", model.graph.input)
            sets.append((given, _read_all(folder, "output", model.graph.output)))
        return model, sets

    def _load_light(self) -> tuple[onnx.ModelProto, list[tuple[list[Any], list[Any]]]]:
        """The light_* networks: a ramp as input, a stored output."""
        path = Path(onnx.__file__).parent / self.case.url.split("onnx/", 1)[1]
        model = onnx.load(path)
        expected = onnx.TensorProto()
        expected.ParseFromString(path.with_name(path.stem + "_output_0.pb").read_bytes())
        weights = {i.name for i in model.graph.initializer}
        value = next(v for v in model.graph.input if v.name not in weights)
        shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        count = int(np.prod(shape))
        ramp = (np.arange(count).reshape(shape) / count).astype(np.float32)
        return model, [([ramp], [numpy_helper.to_array(expected)])]

    @staticmethod
    def feeds(model: onnx.ModelProto, given: list[Any]) -> dict[str, Any]:
        """Return inputs by name; old models list their weights among the inputs."""
        names = [v.name for v in model.graph.input]
        if len(given) < len(names):
            weights = {t.name for t in model.graph.initializer}
            names = [n for n in names if n not in weights]
        return dict(zip(names, given, strict=False))

    def check(self, expected: list[Any], got: list[Any]) -> None:
        """Compare as the suite itself does."""
        Runner.assert_similar_outputs(expected, got, self.case.rtol, self.case.atol)


def as_value(x: Any) -> Any:
    """Return a NumPy array, list or None for a proto."""
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, onnx.SequenceProto):
        return numpy_helper.to_list(x)
    if isinstance(x, onnx.OptionalProto):
        return numpy_helper.to_optional(x)
    return np.asarray(x) if isinstance(x, np.generic) else x


def _read_all(folder: Path, stem: str, declared: Any) -> list[Any]:
    count = len(list(folder.glob(f"{stem}_*.pb")))
    return [_read(folder / f"{stem}_{i}.pb", declared[i].type) for i in range(count)]


def _read(path: Path, declared: onnx.TypeProto) -> Any:
    proto: Any = onnx.TensorProto()
    if declared.HasField("sequence_type"):
        proto = onnx.SequenceProto()
    elif declared.HasField("optional_type"):
        proto = onnx.OptionalProto()
    proto.ParseFromString(path.read_bytes())
    return as_value(proto)


def all_cases() -> Iterator[Case]:
    """Yield every case of the suite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in KINDS:
            for case in load_model_tests(kind=kind):
                yield Case(kind, case.name, case)
