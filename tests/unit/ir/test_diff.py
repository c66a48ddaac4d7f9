from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.ir import Graph, Op, Tensor, diff, in_order
from tests.unit.examples import at_most

from . import networks
from .strategies import graphs

NET = networks.convnet()


def sentences(one, other, **options):
    return [str(difference) for difference in diff(one, other, **options)]


def with_op(graph: Graph, which: str, **changes) -> Graph:
    ops = tuple(dataclasses.replace(op, **changes) if op.name == which else op for op in graph.ops)
    return dataclasses.replace(graph, ops=ops)


def with_tensor(graph: Graph, name: str, **changes) -> Graph:
    tensors = {**graph.tensors, name: dataclasses.replace(graph.tensors[name], **changes)}
    return dataclasses.replace(graph, tensors=tensors)


@pytest.mark.parametrize("structural", [False, True])
@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (networks.without(NET, "relu2"), ["stage 1: Conv 'conv2' has no Relu after it"]),
        (networks.without(NET, "copy1"), ["stage 0: MaxPool 'pool1' has no IpuCopy after it"]),
        (networks.without(NET, "relu1"), ["stage 0: Conv 'conv1' has no Relu after it"]),
        (with_op(NET, "relu2", type="Tanh"), ["op 'relu2': Relu expected, Tanh found"]),
        (with_op(NET, "relu2", ipu=0), ["Relu 'relu2': ipu 1 expected, 0 found"]),
        (with_op(NET, "relu2", stage=None), ["Relu 'relu2': stage 1 expected, none found"]),
        (
            with_op(NET, "conv2", attributes={"kernel_shape": (3, 3), "group": 2}),
            ["Conv 'conv2': attribute 'group' none expected, 2 found"],
        ),
        (
            with_op(NET, "fc1", attributes={"alpha": 0.5, "transB": 1}),
            ["Gemm 'fc1': attribute 'alpha' 1.0 expected, 0.5 found"],
        ),
        (with_tensor(NET, "r2", shape=(5, 3, 4)), ["tensor 'r2': shape (5, 3, 2, 2) expected, (5, 3, 4) found"]),
        (with_tensor(NET, "x", dtype="FLOAT16"), ["tensor 'x': dtype FLOAT expected, FLOAT16 found"]),
        (with_op(NET, "fc1", inputs=("f", "w3")), ["Gemm 'fc1': 3 inputs expected, 2 found"]),
        (
            with_op(NET, "relu1", inputs=("x",)),
            ["Relu 'relu1': input 0 'c1' of Conv 'conv1' expected, 'x' found"],
        ),
    ],
)
def test_one_difference_is_one_sentence(found, expected, structural):
    """A single change is told once, by what it is, with names compared or not."""
    assert sentences(NET, found, structural=structural) == expected


@pytest.mark.parametrize("structural", [False, True])
def test_an_extra_op_is_one_sentence(structural):
    """What is found beyond the expected is told where it stands."""
    assert sentences(networks.without(NET, "relu2"), NET, structural=structural) == [
        "stage 1: Conv 'conv2' has Relu 'relu2' after it, which is not expected"
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (with_op(NET, "relu2", name="act2"), ["Relu 'relu2': name 'relu2' expected, 'act2' found"]),
        (dataclasses.replace(NET, name="other"), ["the graph's name: 'convnet' expected, 'other' found"]),
        (dataclasses.replace(NET, opset=12), ["the graph's opset: 11 expected, 12 found"]),
        (
            dataclasses.replace(
                NET, inputs=("x", "w1"), initializers={k: v for k, v in NET.initializers.items() if k != "w1"}
            ),
            ["'w1': weight expected, graph input found"],
        ),
        (dataclasses.replace(NET, outputs=("y", "f")), ["graph output 'f' is found and not expected"]),
        (dataclasses.replace(NET, outputs=()), ["graph output 'y' is missing"]),
    ],
)
def test_names_and_the_ends_of_the_graph_are_compared(found, expected):
    """Without names counting for nothing, those of ops, tensors and the graph are differences too."""
    assert sentences(NET, found) == expected


def test_values_of_weights_are_compared_by_digest():
    """Weights that differ are named; a structural comparison leaves values out."""
    found = dataclasses.replace(NET, initializers={**NET.initializers, "b3": networks.floats(1, 2, 3, 5)})

    said = sentences(NET, found)
    assert len(said) == 1
    assert said[0].startswith("weight 'b3': values with SHA-256 ")
    assert sentences(NET, found, structural=True) == []


def test_a_renamed_input_is_one_sentence():
    """What reads a renamed input is not told of."""
    ops = [dataclasses.replace(op, inputs=tuple("image" if n == "x" else n for n in op.inputs)) for op in NET.ops]
    tensors = [Tensor("image" if t.name == "x" else t.name, t.dtype, t.shape) for t in NET.tensors.values()]
    found = Graph(NET.name, ops, ["image"], NET.outputs, tensors, NET.initializers)

    assert sentences(NET, found) == ["graph input 'x' expected, 'image' found"]


@pytest.mark.parametrize("place", [0, 1, 17, 58, 59])
def test_one_op_less_in_a_long_chain_of_equal_layers_is_one_sentence(place):
    """Repeated layers do not make the comparison slip: all but one op stay paired."""
    chain = networks.chain("Conv Relu Tanh " * 20)
    said = sentences(chain, networks.without(networks.renamed(chain), f"other/{place}"), structural=True)

    assert len(said) == 1
    assert "has no" in said[0] or "is missing" in said[0]


def test_ops_of_one_name_are_told_apart_by_what_they_make():
    """Two ops that share name and type, in another order, are the same two ops."""
    tensors = {name: Tensor(name, "FLOAT", (2,)) for name in ("x", "a", "b")}
    ops = tuple(Op("Relu", "act", ("x",), (made,)) for made in ("a", "b"))
    graph = Graph("g", ops, inputs=("x",), outputs=("a", "b"), tensors=tensors)

    assert sentences(graph, dataclasses.replace(graph, ops=ops[::-1])) == []


@at_most(50)
@given(graphs(), st.randoms(use_true_random=False))
def test_equal_graphs_have_no_differences(graph, random):
    """The same ops in any order that can be executed are the same graph; renamed they are so structurally."""
    shuffled = list(graph.ops)
    random.shuffle(shuffled)
    other = dataclasses.replace(graph, ops=in_order(shuffled))

    assert sentences(graph, other) == []
    assert sentences(graph, networks.renamed(other), structural=True) == []


@at_most(60)
@given(graphs(), graphs())
def test_different_graphs_have_differences(one, other):
    """Two graphs that are not equal always differ in some sentence, whatever they are, and it is one line."""
    found = diff(one, other)

    assert bool(found) == (one != other)
    assert all(len(sentence.splitlines()) == 1 for sentence in map(str, found))
    diff(one, other, structural=True)


@at_most(60)
@given(graphs(), st.data())
def test_any_single_change_to_an_op_is_found(graph, data):
    """A changed type, placement or attribute of any op is one sentence about that op."""
    index = data.draw(st.integers(0, len(graph.ops) - 1))
    change = data.draw(st.sampled_from([{"type": "Changed"}, {"ipu": 99}, {"stage": 99}, {"attributes": {"new": 1}}]))
    ops = list(graph.ops)
    ops[index] = dataclasses.replace(ops[index], **change)
    named = [op.name for op in graph.ops]
    said = sentences(graph, dataclasses.replace(graph, ops=ops))

    assert said
    if len(set(named)) == len(named) and "" not in named and "attributes" not in change:
        assert len(said) == 1
