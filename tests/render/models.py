"""Graphs to draw."""

from __future__ import annotations

import numpy as np

from kn_graph import Graph, Value

__all__ = ["chain", "control", "layers"]


def layers(count: int = 3, *, names: bool = True) -> Graph:
    """Return equal blocks between an input and an output, with or without names that say so."""
    g = Graph("layers")
    x = g.input("x", "float32", ["batch", 8])
    for i in range(count):
        x = layer(g, x, i, names)
    with g.origin("/head/Softmax" if names else "node_softmax"):
        g.output("y", g.softmax(x, 1))
    return g


def layer(g: Graph, x: Value, i: int, names: bool) -> Value:
    """Add a residual block of two products."""
    before, rng = x, np.random.default_rng(i)
    for j, step in enumerate(("up", "act", "down", "scale")):
        with g.origin(f"/encoder/layer.{i}/mlp/{step}" if names else f"node_{step}_{4 * i + j}"):
            weight = g.constant(rng.normal(size=(8, 8)).astype(np.float32))
            x = g.relu(x) if step == "act" else x * 0.5 if step == "scale" else g.matmul(x, weight)
        x.names = (f"layer.{i}.{step}_out",)
    with g.origin(f"/encoder/layer.{i}/Add" if names else f"node_add_{i}"):
        return x + before


def chain(length: int) -> Graph:
    """Return additions and activations one after the other."""
    g = Graph("chain")
    x = g.input("x", "float32", [4])
    for i in range(length // 2):
        x = g.relu(x + float(i + 1))
    g.output("y", x)
    return g


def body(parent: Graph, name: str, scale: float) -> Graph:
    """Return a body of control flow that computes with one value."""
    g = Graph(name, parent=parent)
    x = g.input("x", "float32", [4])
    g.output("y", g.tanh(x * scale))
    return g.seal()


def control() -> Graph:
    """Return a graph with two branches."""
    g = Graph("control")
    condition = g.input("condition", "bool", [])
    x = g.input("x", "float32", [4])
    (y,) = g.if_else(condition, body(g, "then", 2.0), body(g, "else", 3.0), [x])
    g.output("y", y)
    return g
