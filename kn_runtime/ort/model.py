"""A model file behind a session, and the graphs it becomes for what is fed.

Onnxruntime checks less than a file declares: sizes of the same name may differ, and an input that
is declared `[]` takes any rank. It finds ranks at run time, where this library wants to know them
before. So one file may need several graphs. The first has the sizes as declared; others are made
when a call needs them, and kept.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from kn_graph.errors import InputShapeError, KnError, SymbolError, UnsupportedModelError
from kn_runtime.options import PrepareOptions
from kn_runtime.ort.enums import GraphOptimizationLevel
from kn_runtime.ort.errors import InvalidArgument, InvalidProtobuf, NoSuchFile, loading, status
from kn_runtime.ort.metadata import ModelMetadata, NodeArg, declared, result_args

if TYPE_CHECKING:
    from kn_graph.graph import Graph
    from kn_graph.onnx.file import ModelFile
    from kn_runtime.device import Device
    from kn_runtime.ort.options import SessionOptions
    from kn_runtime.prepared import PreparedGraph

__all__ = ["Model"]

log = logging.getLogger(__name__)

FOLDER = "session.model_external_initializers_file_folder_path"
"""Configuration entry: where weights beside a model lie that comes from bytes."""

KEPT = 64
"""How many graphs are kept."""

TRIED = 2
"""What sizes are taken to be, to find out whether numbers help."""


@dataclass(frozen=True)
class Form:
    """What a graph is made for.

    Attributes:
        shapes: of inputs by name, instead of those declared; None for a size of any number.
        is_loose: whether sizes of the same name may differ.
    """

    shapes: tuple[tuple[str, tuple[int | None, ...]], ...] = ()
    is_loose: bool = False


class Model:
    """An open model on a device; any number of threads may call it.

    Attributes:
        inputs: that a program feeds.
        overridable: initializers that it may feed.
        outputs: in order.
        results: the outputs as programs see them.
        metadata: facts of the file.
    """

    def __init__(self, source: Any, options: SessionOptions, device: Device) -> None:
        self._options, self._device = options, device
        self._file = _read(source, options)
        self._lock = Lock()
        self._graphs: dict[Form, PreparedGraph] = {}
        self._needs_sizes = False
        proto = self._file.proto
        _replace_initializers(self._file, options)
        with loading():
            every = [declared(i, options._dims, options._denotations) for i in proto.graph.input]
            given = {t.name for t in proto.graph.initializer}
            given |= {t.values.name for t in proto.graph.sparse_initializer}
            self.inputs = [d for d in every if d.name not in given]
            is_open = proto.ir_version >= 4
            self.overridable = [d for d in every if d.name in given and is_open]
            self.outputs = [
                declared(o, options._dims, options._denotations) for o in proto.graph.output
            ]
            self._names = {d for a in every for d in a.arg.shape if isinstance(d, str)}
            first = self._first()
        self.results: list[NodeArg] = result_args(
            self.outputs, None if first is None else first.graph, self._names
        )
        self.metadata = ModelMetadata.of(proto)
        if options.optimized_model_filepath:
            self._write(first)

    def _first(self) -> PreparedGraph | None:
        """Return the graph as declared; None if the first call has to show ranks or sizes."""
        try:
            return self.graph(Form())
        except KnError as error:
            if any(d.is_free for d in self.inputs) or self._depends_on_sizes(error):
                return None
            raise

    def _depends_on_sizes(self, error: KnError) -> bool:
        """Return whether the file can be used once its sizes are numbers."""
        if not isinstance(error, UnsupportedModelError) or error.operators:
            return False
        shapes = {
            d.name: [s if isinstance(s, int) else TRIED for s in d.arg.shape]
            for d in self.inputs
            if d.kind == "tensor"
        }
        try:
            self._load(Form(tuple((n, tuple(s)) for n, s in shapes.items())))
        except KnError:
            return False
        return True

    def _write(self, first: PreparedGraph | None) -> None:
        from kn_graph.onnx import save_graph_to_onnx_path

        path = self._options.optimized_model_filepath
        if first is None:
            raise status(
                InvalidArgument,
                f"optimized_model_filepath={path!r}: an input of this model has no rank, so there "
                "is no graph to write before the first run",
            )
        with loading():
            save_graph_to_onnx_path(first.graph, path)

    # ---- graphs -----------------------------------------------------------------------------

    def graph(self, form: Form) -> PreparedGraph:
        """Return the graph for a form, made at the first call."""
        with self._lock:
            found = self._graphs.get(form)
            if found is None:
                if len(self._graphs) >= KEPT:
                    del self._graphs[next(iter(self._graphs))]
                found = self._graphs[form] = self._prepare(form)
        return found

    def _prepare(self, form: Form) -> PreparedGraph:
        threads = self._options.intra_op_num_threads
        level = self._options.graph_optimization_level
        log.info("preparing %s on %s for %s", self._file.label, self._device, form)
        return self._device.prepare(
            self._load(form),
            optimize=level is not GraphOptimizationLevel.ORT_DISABLE_ALL,
            options=PrepareOptions(threads=threads if threads > 0 else None),
        )

    def _load(self, form: Form) -> Graph:
        from kn_graph.onnx import load_graph

        shapes: dict[str, Sequence[int | str | None]] = dict(form.shapes)
        overridden = bool(self._options._dims or self._options._denotations)
        for d in self.inputs:
            if d.kind == "tensor" and not d.is_free and d.name not in shapes:
                if form.is_loose:
                    shapes[d.name] = [s if isinstance(s, int) else None for s in d.arg.shape]
                elif overridden:
                    shapes[d.name] = d.arg.shape
        return load_graph(self._file, input_shapes=shapes)

    def eval(self, feed: Mapping[str, Any], seed: int) -> tuple[PreparedGraph, dict[str, Any]]:
        """Run on checked values.

        Returns:
            The graph that took them, and outputs by name.
        """
        form = self._form_of(feed)
        prepared = self._graph_for(form, feed)
        try:
            return prepared, prepared.eval(feed, seed=seed)
        except (SymbolError, InputShapeError) as error:
            try:
                loose = self._graph_for(replace(form, is_loose=True), feed)
                return loose, loose.eval(feed, seed=seed)
            except KnError:
                raise error from None  # it names both inputs whose sizes contradict each other

    def _form_of(self, feed: Mapping[str, Any]) -> Form:
        """Return the form that has the ranks of checked values."""
        ranks = {d.name: _rank(feed.get(d.name)) for d in self.inputs if d.is_free}
        declared = {d.name: d.rank for d in self.inputs}
        return Form(
            tuple(
                (name, (None,) * rank)
                for name, rank in ranks.items()
                if rank is not None and rank != declared[name]
            )
        )

    def _graph_for(self, form: Form, feed: Mapping[str, Any]) -> PreparedGraph:
        """Return the graph of a form, or that for exactly the sizes of what is fed."""
        if not self._needs_sizes:
            try:
                return self.graph(form)
            except UnsupportedModelError:
                self._needs_sizes = True
        shapes = {n: x.shape for n, x in feed.items() if isinstance(x, np.ndarray)}
        return self.graph(Form(tuple(shapes.items())))


def _rank(x: Any) -> int | None:
    """Return the rank of an array, or that of all elements of a list."""
    if isinstance(x, np.ndarray):
        return x.ndim
    if isinstance(x, list):
        ranks = {getattr(e, "ndim", None) for e in x}
        return ranks.pop() if len(ranks) == 1 else None
    return None


def _read(source: Any, options: SessionOptions) -> ModelFile:
    """Open a model.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidArgument: it is not there, or is none.
        TypeError: the source is neither a path nor bytes.
    """
    from kn_graph.onnx.file import read_model

    if not isinstance(source, (str, bytes, os.PathLike)) or source == "":
        raise TypeError(
            f"Unable to load from type '{type(source)}': a model is given by its path or its bytes"
        )
    if source == b"":
        raise status(InvalidArgument, "No graph was found in the protobuf: there are no bytes.")
    is_path = not isinstance(source, bytes)
    if is_path and not os.path.exists(source):
        raise status(
            NoSuchFile,
            f"Load model from {os.fsdecode(source)} failed: File doesn't exist "
            f"(the working directory is {os.getcwd()})",
        )
    try:
        file = read_model(source)
    except KnError as error:
        where = f"Load model from {os.fsdecode(source)} failed:" if is_path else "Failed to load:"
        text = f"{where}Protobuf parsing failed. {error}"
        raise status(InvalidProtobuf, text) from error
    if file.base_dir is None:
        file.base_dir = Path(options._entries.get(FOLDER, ".")).absolute()
    return file


def _replace_initializers(file: ModelFile, options: SessionOptions) -> None:
    """Put the arrays of `SessionOptions.add_initializer` in the place of weights.

    Raises:
        InvalidArgument: the model has no weight of a name.
    """
    if not options._initializers:
        return
    from onnx import numpy_helper

    weights = {t.name: t for t in file.proto.graph.initializer}
    for name, value in options._initializers.items():
        if name not in weights:
            raise status(InvalidArgument, f"add_initializer: the model has no initializer {name!r}")
        weights[name].CopyFrom(numpy_helper.from_array(value.numpy(), name))
