"""Models that are broken, contradict themselves, or ask for more than a machine has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.small_models import info, model, node

HUGE = 10**13


@dataclass(frozen=True)
class BadModel:
    """A file that must be refused.

    Attributes:
        make: writes `model.onnx` and what belongs to it into a folder.
        category: of the error.
        says: texts that the error contains.
        arguments: of `kn run`, after the model.
    """

    make: Callable[[Path], None]
    category: str
    says: Sequence[str]
    arguments: Sequence[str] = field(default=("--input", "random"))


def saved(proto: onnx.ModelProto, **arrays: Any) -> Callable[[Path], None]:
    """Return a maker that writes a model, and arrays as .npy files beside it."""
    return written(proto.SerializeToString(), **arrays)


def written(data: bytes, **arrays: Any) -> Callable[[Path], None]:
    """Return a maker that writes bytes, and arrays as .npy files beside them."""

    def make(folder: Path) -> None:
        (folder / "model.onnx").write_bytes(data)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array)

    return make


RELU = model([node("Relu", "x", "y")], [info("x", ["n", 3])])
TWO = model([node("Add", "a b", "y")], [info("a", ["n", 3]), info("b", ["n", 3])])


def claimed(name: str, *dims: int) -> TensorProto:
    """Return a tensor of some sizes without data."""
    return TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)


def external(name: str, location: str, count: int = 4) -> TensorProto:
    """Return a tensor whose data is in another file."""
    tensor = claimed(name, count)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def add_w(w: TensorProto) -> Callable[[Path], None]:
    """Return a maker of `y = x + w`."""
    return saved(model([node("Add", "x w", "y")], weights={"w": w}))


def symlink(folder: Path) -> None:
    """Write a model whose data is a link out of its folder."""
    (folder.parent / "outside.bin").write_bytes(bytes(16))
    (folder / "w.bin").symlink_to(folder.parent / "outside.bin")
    add_w(external("w", "w.bin"))(folder)


def short_data(folder: Path) -> None:
    """Write a model whose data file is too short."""
    (folder / "w.bin").write_bytes(bytes(12))
    add_w(external("w", "w.bin"))(folder)


def doublings(count: int, operator: str) -> onnx.ModelProto:
    """Return a model of a few bytes a step that doubles a tensor over and over."""
    weights: dict[str, Any] = {"two": np.array([1, 2]), "none": np.array([1, -1])}
    nodes = [node("Reshape", "x none", "t0")]
    for i in range(count):
        if operator == "Concat":
            nodes.append(node("Concat", f"t{i} t{i}", f"t{i + 1}", axis=1))
        else:
            nodes.append(node("Tile", f"t{i} two", f"t{i + 1}"))
    nodes.append(node("Neg", f"t{count}", "y"))
    return model(nodes, [info("x", [1024])], weights=weights)


def shape_powers(shape: Sequence[Any], count: int = 40) -> onnx.ModelProto:
    """Return a model that squares a size over and over, and asks for a tensor of that size."""
    nodes = [node("Shape", "x", "s0")]
    nodes += [node("Mul", f"s{i} s{i}", f"s{i + 1}") for i in range(count)]
    nodes.append(node("ConstantOfShape", f"s{count}", "y"))
    return model(nodes, [info("x", shape)])


def deep_ifs(depth: int) -> bytes:
    """Return the bytes of a model of Ifs within each other, deeper than protobuf itself writes."""

    def field(number: int, payload: bytes) -> bytes:
        size, encoded = len(payload), bytearray([number << 3 | 2])
        while size >= 0x80:
            encoded.append(size & 0x7F | 0x80)
            size >>= 7
        return bytes([*encoded, size]) + payload

    relu = RELU.graph.SerializeToString()
    graph = relu
    for _ in range(depth):
        both = (
            field(5, field(1, n) + field(6, g) + b"\xa0\x01\x05")
            for n, g in ((b"then_branch", graph), (b"else_branch", relu))
        )
        body = field(1, b"c") + field(2, b"y") + field(4, b"If") + b"".join(both)
        graph = field(1, body) + field(12, field(1, b"y"))
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x15")


def calls(*bodies: tuple[str, Sequence[Any]], main: str) -> onnx.ModelProto:
    """Return a model that calls functions of one input a and one output b."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", name, ["a"], ["b"], list(nodes), imports)
        for name, nodes in bodies
    ]
    call = node(main, "x", "y", domain="own")
    return model([call], opsets={"": 21, "own": 1}, functions=functions)


def call_bomb(levels: int) -> onnx.ModelProto:
    """Return a model whose functions call the next one four times each."""
    bodies: list[tuple[str, Sequence[Any]]] = [("f0", [node("Neg", "a", "b")])]
    for i in range(1, levels):
        inner = [
            node(f"f{i - 1}", f"{'a' if j == 0 else f't{j}'}", f"t{j + 1}", domain="own")
            for j in range(4)
        ]
        bodies.append((f"f{i}", [*inner, node("Identity", "t4", "b")]))
    return calls(*bodies, main=f"f{levels - 1}")


SIZES = {"s": np.array([HUGE // 10, 100])}


def at_run_time(nodes: Sequence[Any]) -> Callable[[Path], None]:
    """Return a maker of a model that gets sizes as an input, and of a file of huge ones."""
    inputs = [info("x", [1, 1]), info("s", [2], TensorProto.INT64)]
    return saved(model(nodes, inputs), s=np.array([10**6, 10**7]))


FEED_SIZES = ("--input", "x=random", "--input", "s={folder}/s.npy")

BAD_MODELS: dict[str, BadModel] = {
    # ---- files that are no models
    "absent": BadModel(lambda folder: None, "malformed_model", ["no such file"]),
    "empty file": BadModel(written(b""), "malformed_model", ["empty"]),
    "text file": BadModel(written(b"hello\nworld\n"), "malformed_model", ["text file"]),
    "truncated": BadModel(
        written(RELU.SerializeToString()[:-20]), "malformed_model", ["truncated"]
    ),
    "cut in a weight": BadModel(
        written(
            model(
                [node("Add", "x w", "y")], weights={"w": np.ones(9999, np.float32)}
            ).SerializeToString()[:-20000]
        ),
        "malformed_model",
        ["truncated"],
    ),
    # ---- names
    "no graph outputs": BadModel(
        saved(helper.make_model(helper.make_graph([], "g", [info("x")], []))),
        "malformed_model",
        ["no outputs"],
    ),
    "output nobody makes": BadModel(
        saved(model([node("Relu", "x", "z")])), "malformed_model", ["'y'", "nothing"]
    ),
    "input nobody makes": BadModel(
        saved(model([node("Relu", "q", "y", "first")])), "malformed_model", ["'q'", "first"]
    ),
    "two inputs of a name": BadModel(
        saved(model([node("Relu", "x", "y")], [info("x"), info("x")])),
        "malformed_model",
        ["two inputs", "'x'"],
    ),
    "two initializers of a name": BadModel(
        saved(
            helper.make_model(
                helper.make_graph(
                    [node("Add", "x w", "y")],
                    "g",
                    [info("x")],
                    [info("y", None)],
                    [numpy_helper.from_array(np.ones(1, np.float32), "w")] * 2,
                )
            )
        ),
        "malformed_model",
        ["two initializers", "'w'"],
    ),
    "two nodes make a tensor": BadModel(
        saved(model([node("Relu", "x", "y"), node("Neg", "x", "y")])),
        "malformed_model",
        ["'y'", "twice"],
    ),
    "a node makes an initializer": BadModel(
        saved(model([node("Relu", "x", "w"), node("Neg", "w", "y")], weights={"w": np.ones(1)})),
        "malformed_model",
        ["'w'", "twice"],
    ),
    "nodes in a circle": BadModel(
        saved(
            model(
                [
                    node("Add", "x b", "a", "one"),
                    node("Neg", "a", "b", "two"),
                    node("Neg", "a", "y"),
                ]
            )
        ),
        "malformed_model",
        ["circle", "one", "two"],
    ),
    # ---- operators
    "unsupported operators": BadModel(
        saved(
            model(
                [
                    node("Foo", "x", "a", "first", domain="strange"),
                    node("Bar", "a", "b", "second", domain="strange"),
                    node("Foo", "b", "y", "third", domain="strange"),
                ],
                opsets={"": 21, "strange": 1},
            )
        ),
        "unsupported_operator",
        ["2 operators", "3 nodes", "strange:Foo-1 x2 (first: first)", "strange:Bar-1 x1"],
    ),
    "operator that does not exist": BadModel(
        saved(model([node("Reluu", "x", "y")])), "unsupported_operator", ["Reluu", "no operator"]
    ),
    "domain not imported": BadModel(
        saved(model([node("Relu", "x", "y")], opsets={"com.microsoft": 1})),
        "malformed_model",
        ["Relu", "opset_import"],
    ),
    "no opset import": BadModel(
        written(onnx.ModelProto(ir_version=8, graph=RELU.graph).SerializeToString()),
        "malformed_model",
        ["opset_import"],
    ),
    "unknown attribute": BadModel(
        saved(model([node("Relu", "x", "y", "n", strength=2)])),
        "unsupported_operator",
        ["'strength'", "n (Relu"],
    ),
    "attribute of the wrong kind": BadModel(
        saved(model([node("Concat", "x x", "y", "n", axis=1.5)])),
        "malformed_model",
        ["'axis'", "FLOAT"],
    ),
    "too few inputs": BadModel(
        saved(model([node("Add", "x", "y", "n")])), "malformed_model", ["input 1", "n (Add"]
    ),
    "shapes that do not fit": BadModel(
        saved(
            model(
                [node("Add", "x w", "y", "n")],
                [info("x", [3])],
                weights={"w": np.ones(4, np.float32)},
            )
        ),
        "shape_mismatch",
        ["n (Add", "3", "4"],
    ),
    "types that do not fit": BadModel(
        saved(model([node("Add", "x w", "y", "n")], [info("x", [3])], weights={"w": np.ones(3)})),
        "dtype_mismatch",
        ["n (Add", "float32", "float64"],
    ),
    # ---- weights
    "weight without data": BadModel(
        add_w(claimed("w", HUGE)), "malformed_model", ["'w'", "got 0 bytes"]
    ),
    "weight of impossible size": BadModel(
        add_w(claimed("w", 2**40, 2**40)), "malformed_model", ["'w'", "ask for"]
    ),
    "external data missing": BadModel(
        add_w(external("w", "w.bin")), "external_data", ["'w.bin'", "no file"]
    ),
    "external data too short": BadModel(short_data, "external_data", ["'w.bin'", "12 bytes"]),
    "external data above": BadModel(add_w(external("w", "../w.bin")), "external_data", ["'..'"]),
    "external data absolute": BadModel(
        add_w(external("w", "/etc/hostname")), "external_data", ["absolute"]
    ),
    "external data by a link": BadModel(symlink, "external_data", ["symbolic link", "outside"]),
    # ---- terabytes
    "ConstantOfShape": BadModel(
        saved(model([node("ConstantOfShape", "s", "c"), node("Add", "x c", "y")], weights=SIZES)),
        "out_of_memory",
        ["bytes"],  # which node it is depends on the optimizer
    ),
    "Expand": BadModel(
        saved(model([node("Expand", "x s", "y")], weights=SIZES)), "out_of_memory", ["Expand"]
    ),
    "Tile": BadModel(
        saved(model([node("Tile", "x r", "y")], weights={"r": np.array([HUGE])})),
        "out_of_memory",
        ["Tile"],
    ),
    "Pad": BadModel(
        saved(model([node("Pad", "x p", "y")], weights={"p": np.array([HUGE, HUGE])})),
        "out_of_memory",
        ["Pad"],
    ),
    "Range": BadModel(
        saved(
            model(
                [
                    node("Range", "a b c", "r"),
                    node("Cast", "r", "f", to=1),
                    node("Add", "x f", "y"),
                ],
                weights={"a": np.array(0), "b": np.array(HUGE), "c": np.array(1)},
            )
        ),
        "out_of_memory",
        ["Range"],
    ),
    "Resize": BadModel(
        saved(
            model(
                [node("Resize", "x  k s".replace("  ", " e "), "y")],
                [info("x", [1, 1, 8, 8])],
                weights={
                    "e": np.zeros(0, np.float32),
                    "k": np.zeros(0, np.float32),
                    "s": np.array([1, 1, 10**7, 10**7]),
                },
            )
        ),
        "out_of_memory",
        ["Resize"],
    ),
    "OneHot": BadModel(
        saved(
            model(
                [node("OneHot", "i d v", "y")],
                [info("i", [8], TensorProto.INT64)],
                weights={"d": np.array(HUGE), "v": np.array([0, 1], np.float32)},
            )
        ),
        "out_of_memory",
        ["OneHot"],
    ),
    "MatMul": BadModel(
        saved(model([node("MatMul", "x x", "y")], [info("x", [2 * 10**6, 2 * 10**6])])),
        "out_of_memory",
        ["'x'"],
    ),
    "outer product": BadModel(
        saved(model([node("MatMul", "a b", "y")], [info("a", [10**6, 1]), info("b", [1, 10**6])])),
        "out_of_memory",
        ["MatMul"],
    ),
    "30 doublings by Concat": BadModel(saved(doublings(30, "Concat")), "out_of_memory", ["Concat"]),
    "30 doublings by Tile": BadModel(saved(doublings(30, "Tile")), "out_of_memory", ["Tile"]),
    "Expand at run time": BadModel(
        at_run_time([node("Expand", "x s", "y")]), "out_of_memory", ["Expand"], FEED_SIZES
    ),
    "ConstantOfShape at run time": BadModel(
        at_run_time([node("ConstantOfShape", "s", "c"), node("Add", "x c", "y")]),
        "out_of_memory",
        ["bytes"],  # which node it is depends on the optimizer
        FEED_SIZES,
    ),
    "Tile at run time": BadModel(
        at_run_time([node("Tile", "x s", "y")]), "out_of_memory", ["Tile"], FEED_SIZES
    ),
    "size squared 40 times": BadModel(saved(shape_powers([3])), "bad_value", ["ConstantOfShape"]),
    "symbol squared 40 times": BadModel(
        saved(shape_powers(["n"])),
        "bad_value",
        ["ConstantOfShape"],
        ("--input", "random", "--dim", "n=3"),
    ),
    "rank above NumPy's": BadModel(
        saved(model([node("Reshape", "x s", "y", "n")], weights={"s": np.ones(99, np.int64)})),
        "shape_mismatch",
        ["n (Reshape", "99", "64"],
    ),
    # ---- nesting and unfolding
    "function that calls itself": BadModel(
        saved(calls(("f", [node("f", "a", "b", domain="own")]), main="f")),
        "malformed_model",
        ["circle", "f -> f"],
    ),
    "functions that unfold to 4^20 nodes": BadModel(
        saved(call_bomb(21)), "unsupported_operator", ["nodes", "unfolded"]
    ),
    "subgraphs 5,000 deep": BadModel(written(deep_ifs(5000)), "malformed_model", ["protobuf"]),
    # ---- inputs
    "wrong element type": BadModel(
        saved(RELU, x=np.ones((2, 3))),
        "dtype_mismatch",
        ["'x'", "float32[n, 3]", "float64[2, 3]"],
        ("--input", "x={folder}/x.npy"),
    ),
    "wrong size": BadModel(
        saved(RELU, x=np.ones((2, 4), np.float32)),
        "shape_mismatch",
        ["'x'", "float32[n, 3]", "float32[2, 4]", "axis 1"],
        ("--input", "x={folder}/x.npy"),
    ),
    "wrong rank": BadModel(
        saved(RELU, x=np.ones(3, np.float32)),
        "shape_mismatch",
        ["'x'", "float32[n, 3]", "float32[3]", "rank 1"],
        ("--input", "x={folder}/x.npy"),
    ),
    "missing inputs": BadModel(saved(TWO), "missing_input", ["'a'", "'b'", "float32[n, 3]"], ()),
    "input that does not exist": BadModel(
        saved(RELU), "usage", ["'z'", "'x'"], ("--input", "z=random")
    ),
    "conflicting sizes": BadModel(
        saved(TWO, a=np.ones((2, 3), np.float32), b=np.ones((5, 3), np.float32)),
        "bad_size",
        ["'n' is 2 by axis 0 of input 'a', but 5 by axis 0 of input 'b'"],
        ("--input", "a={folder}/a.npy", "--input", "b={folder}/b.npy"),
    ),
    "size that does not exist": BadModel(
        saved(RELU), "bad_size", ["'m'", "'n'"], ("--input", "random", "--dim", "m=3")
    ),
    "sizes that no assumption fits": BadModel(
        saved(model([node("Relu", "x", "y")], [info("x", ["n-5000"])])),
        "bad_size",
        ["1, 64, 512, 4096 for 'n'", "--dim"],
    ),
    "sizes that a node refuses": BadModel(
        saved(
            model([node("Reshape", "x s", "y", "r")], [info("x", [4]), info("s", [1], 7)]),
            s=np.array([3]),
        ),
        "bad_value",
        ["4"],
        ("--input", "x=random", "--input", "s={folder}/s.npy"),
    ),
    "index out of range": BadModel(
        saved(
            model([node("Gather", "x i", "y", "pick")], [info("x", [4]), info("i", [1], 7)]),
            i=np.array([4]),
        ),
        "bad_value",
        ["pick", "4"],
        ("--input", "x=random", "--input", "i={folder}/i.npy"),
    ),
}
