"""The normal form unifies what frameworks say differently, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given

from ipu_conformance.ir import Graph, Op, Tensor, isomorphic
from ipu_conformance.ir.compare.isomorphism import DIFFERENT, ISOMORPHIC
from ipu_conformance.ir.compare.normal import normal
from tests.unit.examples import at_most

from . import networks
from .strategies import graphs

WINDOW = {"kernel_shape": (3, 3), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0), "group": 1}


def graph(ops, inputs, weights=(), outputs=("y",)) -> Graph:
    """A graph of ops given as type, inputs, output with its shape, and attributes."""
    made = [Op(kind, "", given.split(), (name,), attributes) for kind, given, (name, _), attributes in ops]
    given = {**dict(inputs), **dict(weights)}
    tensors = [Tensor(name, "FLOAT", shape) for name, shape in given.items()]
    tensors += [Tensor(name, "FLOAT", shape) for _, _, (name, shape), _ in ops]
    return Graph("g", made, dict(inputs), outputs, tensors, list(dict(weights)))


X, IMAGE = [("x", (2, 3))], [("x", (2, 3, 6, 6))]
GEMM = graph([("Gemm", "x w b", ("y", (2, 4)), {})], X, [("w", (3, 4)), ("b", (4,))])
CONV = graph([("Conv", "x w b", ("y", (2, 5, 4, 4)), WINDOW)], IMAGE, [("w", (5, 3, 3, 3)), ("b", (5,))])
FLAT = graph([("Reshape", "x", ("f", (2, 108)), {}), ("MatMul", "f w", ("y", (2, 4)), {})], IMAGE, [("w", (108, 4))])
RELU = graph([("Relu", "x", ("y", (2, 3)), {})], X)

SAME = {
    "a transposed weight": (
        graph([("Gemm", "x w b", ("y", (2, 4)), {"transB": 1, "alpha": 1.0})], X, [("w", (4, 3)), ("b", (4,))]),
        GEMM,
    ),
    "a Transpose, a MatMul and an Add, as PopTorch has them": (
        graph([
            ("Transpose", "w", ("t", (3, 4)), {"perm": (1, 0)}),
            ("MatMul", "x t", ("m", (2, 4)), {}),
            ("Add", "b m", ("y", (2, 4)), {}),
        ], X, [("w", (4, 3)), ("b", (4,))]),
        GEMM,
    ),
    "a bias that is expanded, as XLA has it": (
        graph([
            ("MatMul", "x w", ("m", (2, 4)), {}),
            ("Expand", "b size", ("e", (2, 4)), {}),
            ("Add", "m e", ("y", (2, 4)), {}),
        ], X, [("w", (3, 4)), ("b", (4,)), ("size", (2,))]),
        GEMM,
    ),
    "a Conv and a bias with new dimensions, as Paddle has them": (
        graph([
            ("Conv", "x w", ("c", (2, 5, 4, 4)), {}),
            ("Unsqueeze", "b", ("u", (5, 1, 1)), {"axes": (1, 2)}),
            ("Add", "c u", ("y", (2, 5, 4, 4)), {}),
        ], IMAGE, [("w", (5, 3, 3, 3)), ("b", (5,))]),
        CONV,
    ),
    "channels that come last in between, as TensorFlow has them": (
        graph([
            ("Conv", "x w", ("c", (2, 5, 4, 4)), {"auto_pad": "VALID"}),
            ("Transpose", "c", ("t", (2, 4, 4, 5)), {"perm": (0, 2, 3, 1)}),
            ("Add", "t b", ("s", (2, 4, 4, 5)), {}),
            ("Identity", "s", ("i", (2, 4, 4, 5)), {}),
            ("Transpose", "i", ("y", (2, 5, 4, 4)), {"perm": (0, 3, 1, 2)}),
        ], IMAGE, [("w", (5, 3, 3, 3)), ("b", (5,))]),
        CONV,
    ),
    "a flattening of channels that come last, before a weight": (
        graph([
            ("Transpose", "x", ("t", (2, 6, 6, 3)), {"perm": (0, 2, 3, 1)}),
            ("Flatten", "t", ("f", (2, 108)), {}),
            ("MatMul", "f w", ("y", (2, 4)), {}),
        ], IMAGE, [("w", (108, 4))]),
        FLAT,
    ),
    "reshapes there and back": (
        graph([
            ("Unsqueeze", "x", ("a", (1, 2, 3)), {"axes": (0,)}),
            ("Reshape", "a shape", ("b", (3, 2)), {}),
            ("Reshape", "b shape", ("c", (2, 3)), {}),
            ("Relu", "c", ("r", (2, 3)), {}),
            ("Squeeze", "r", ("y", (2, 3)), {}),
        ], X, [("shape", (2,))]),
        RELU,
    ),
    "one Transpose after the other": (
        graph([
            ("Transpose", "x", ("t", (3, 4, 2)), {"perm": (1, 2, 0)}),
            ("Transpose", "t", ("y", (3, 2, 4)), {"perm": (0, 2, 1)}),
        ], [("x", (2, 3, 4))]),
        graph([("Transpose", "x", ("y", (3, 2, 4)), {"perm": (1, 0, 2)})], [("x", (2, 3, 4))]),
    ),
    "ops that nothing needs": (
        graph([("Relu", "x", ("y", (2, 3)), {}), ("Exp", "x", ("z", (2, 3)), {})], X),
        RELU,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_the_same_network_has_one_normal_form(name):
    """Two ways to say a network are different graphs with isomorphic normal forms."""
    one, other = SAME[name]

    assert isomorphic(one, other).verdict == DIFFERENT
    outcome = isomorphic(normal(one), normal(other))
    assert outcome.verdict == ISOMORPHIC, outcome.sentence


DIFFERENT_ONES = {
    "a bias along rows": (
        graph([("MatMul", "x w", ("m", (2, 4)), {}), ("Add", "m b", ("y", (2, 4)), {})], X,
              [("w", (3, 4)), ("b", (2, 1))]),
        GEMM,
    ),
    "factors": (graph([("Gemm", "x w b", ("y", (2, 4)), {"alpha": 0.5})], X, [("w", (3, 4)), ("b", (4,))]), GEMM),
    "a bias along the width": (
        graph([("Conv", "x w", ("c", (2, 5, 4, 4)), {}), ("Add", "c b", ("y", (2, 5, 4, 4)), {})], IMAGE,
              [("w", (5, 3, 3, 3)), ("b", (4,))]),
        CONV,
    ),
    "other strides": (
        graph([("Conv", "x w b", ("y", (2, 5, 2, 2)), {"strides": (2, 2)})], IMAGE, [("w", (5, 3, 3, 3)), ("b", (5,))]),
        CONV,
    ),
    "a product that is read twice": (
        graph([
            ("MatMul", "x w", ("m", (2, 4)), {}),
            ("Add", "m b", ("s", (2, 4)), {}),
            ("Mul", "s m", ("y", (2, 4)), {}),
        ], X, [("w", (3, 4)), ("b", (4,))]),
        graph([
            ("Gemm", "x w b", ("s", (2, 4)), {}),
            ("Mul", "s s", ("y", (2, 4)), {}),
        ], X, [("w", (3, 4)), ("b", (4,))]),
    ),
    "a Transpose that is no matter of a weight": (
        graph([
            ("Transpose", "x", ("t", (2, 6, 6, 3)), {"perm": (0, 2, 3, 1)}),
            ("Reshape", "t", ("f", (2, 108)), {}),
            ("Tanh", "f", ("y", (2, 108)), {}),
        ], IMAGE),
        graph([("Reshape", "x", ("f", (2, 108)), {}), ("Tanh", "f", ("y", (2, 108)), {})], IMAGE),
    ),
    "an expansion that is the result": (
        graph([("Expand", "x n", ("e", (5, 2, 3)), {}), ("Relu", "e", ("y", (5, 2, 3)), {})], X, [("n", (3,))]),
        RELU,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT_ONES)
def test_other_networks_stay_different(name):
    """What means something else has another normal form."""
    one, other = DIFFERENT_ONES[name]

    assert isomorphic(normal(one), normal(other)).verdict == DIFFERENT


def test_an_input_with_channels_last_is_turned_when_asked():
    """The Transpose of an input is kept, unless inputs may be taken in the order in which they are read."""
    last = graph(
        [("Transpose", "x", ("t", (2, 3, 6, 6)), {"perm": (0, 3, 1, 2)}), ("Conv", "t w b", ("y", (2, 5, 4, 4)), {})],
        [("x", (2, 6, 6, 3))],
        [("w", (5, 3, 3, 3)), ("b", (5,))],
    )

    assert isomorphic(normal(last), normal(CONV)).verdict == DIFFERENT
    assert isomorphic(normal(last, turn_inputs=True), normal(CONV)).verdict == ISOMORPHIC


def test_placement_stays():
    """Every op of the normal form is where it was."""
    found = normal(networks.convnet())

    assert {op.type: (op.ipu, op.stage) for op in found.ops}["Gemm"] == (1, 1)
    assert [op.type for op in found.ops].count("IpuCopy") == 1
    assert isomorphic(found, normal(networks.renamed(networks.convnet()))).verdict == ISOMORPHIC


@at_most(60)
@given(graphs(types=["Relu", "Add", "MatMul", "Identity", "Transpose", "Reshape", "Gemm", "Conv", "Expand", "Softmax"]))
def test_the_normal_form_of_any_graph_is_a_graph(drawn):
    """Any graph has a normal form with its inputs, and that has itself for a normal form."""
    found = normal(drawn)

    assert found.inputs == drawn.inputs
    assert len(found.ops) <= 2 * len(drawn.ops)
    assert [op.type for op in normal(found).ops] == [op.type for op in found.ops]


def test_what_is_computed_has_no_placement_and_no_marks() -> None:
    """Without placement, IPUs, stages, copies, marks and unread inputs are gone, and numbers have 32 bits."""
    placed = Graph(
        "g",
        [
            Op("LeakyRelu", "a", ("x",), ("t",), {"alpha": 0.1, "recompute": "YES"}, 0, 0),
            Op("IpuCopy", "", ("t",), ("t_c1",), {"__sourceIpus": "{0}", "__destIpu": 1}, 0, 0),
            Op("Tanh", "b", ("t_c1",), ("y",), {"availableMemoryProportion": 0.5}, 1, 1),
        ],
        ["x", "labels"],
        ["y"],
        [Tensor(name, "FLOAT", (2, 3)) for name in ("x", "labels", "t", "t_c1", "y")],
    )
    plain = Graph(
        "g",
        [Op("LeakyRelu", "", ("x",), ("t",), {"alpha": 0.10000000149011612}), Op("Tanh", "", ("t",), ("y",))],
        ["x"],
        ["y"],
        [Tensor(name, "FLOAT", (2, 3)) for name in ("x", "t", "y")],
    )

    outcome = isomorphic(normal(placed, unplaced=True), normal(plain, unplaced=True))
    assert outcome.verdict == ISOMORPHIC, outcome.sentence
    assert isomorphic(normal(placed), normal(plain)).verdict != ISOMORPHIC


def test_a_weight_that_is_turned_twice_is_one_weight() -> None:
    """Two layers that turn one weight in the same way share it in the normal form."""
    ops = [
        Op("Transpose", "", ("w",), ("w1",), {"perm": (1, 0)}),
        Op("MatMul", "", ("x", "w1"), ("h",)),
        Op("Transpose", "", ("w",), ("w2",), {"perm": (1, 0)}),
        Op("MatMul", "", ("h", "w2"), ("y",)),
    ]
    shapes = {"x": (2, 3), "w": (3, 3), "w1": (3, 3), "w2": (3, 3), "h": (2, 3), "y": (2, 3)}
    tensors = [Tensor(name, "FLOAT", shape) for name, shape in shapes.items()]

    assert len(normal(Graph("g", ops, ["x"], ["y"], tensors, ["w"])).initializers) == 1
