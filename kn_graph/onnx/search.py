"""Finds truths of open conditions under which a model can be loaded.

A TorchScript export asks `size == 1` to squeeze an axis, and what follows needs the squeezed rank.
A guess about the size that is wrong makes the rest of the model contradict itself, so the guess is
taken back: the latest first.
"""

from __future__ import annotations

from dataclasses import replace

from kn_graph.errors import GraphError, UnsupportedModelError
from kn_graph.graph import Graph
from kn_graph.onnx.file import ModelFile
from kn_graph.onnx.loader import Loader, LoadOptions

__all__ = ["load_under_assumptions"]

MAX_ATTEMPTS = 64


def load_under_assumptions(file: ModelFile, options: LoadOptions) -> Graph:
    """Load a model, trying other decisions where those first taken lead nowhere.

    Raises:
        GraphError, UnsupportedModelError: of the first attempt, where all fail.
    """
    first: GraphError | UnsupportedModelError | None = None
    pending = [(dict(options.assumed.decisions), options.assumed.forced)]
    for _ in range(MAX_ATTEMPTS):
        if not pending:
            break
        decisions, forced = pending.pop()
        assumed = replace(options.assumed, decisions=decisions, forced=forced)
        loader = Loader(file, replace(options, assumed=assumed))
        try:
            return loader.load()
        except (GraphError, UnsupportedModelError) as error:
            first = first or error
        guards = [*loader.graph.guards, *loader.graph.body_guards]
        taken = [(str(g.condition), g.decided) for g in guards]
        for i, (text, decided) in enumerate(taken):
            if text not in decisions:  # the last one flipped is tried next
                flipped = {**dict(taken[:i]), **decisions, text: not decided}
                pending.append((flipped, forced | {text}))
    assert first is not None
    raise first
