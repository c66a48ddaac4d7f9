from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.ir import Graph, IRError, Op, Step, Tensor, in_order, isomorphic, match
from ipu_conformance.ir.compare.isomorphism import DIFFERENT, ISOMORPHIC, UNDECIDED
from tests.unit.examples import at_most
from tests.unit.refusals import refused

from . import networks
from .strategies import graphs


def names(found):
    return [tuple(op.name for op in chain) for chain in found]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("Conv -> Relu", [("conv1", "relu1"), ("conv2", "relu2")]),
        ("Conv -> Relu -> MaxPool", [("conv1", "relu1", "pool1")]),
        ("Conv{stage=1} -> Relu", [("conv2", "relu2")]),
        ("Conv{ipu=0, pads=[1 1 1 1]}", [("conv1",)]),
        ("*{name=fc1}", [("fc1",)]),
        ("MaxPool|Flatten -> *", [("pool1", "copy1"), ("flatten", "fc1")]),
        ("Gemm{alpha=1.0, transB=1}", [("fc1",)]),
        ("Relu -> Conv", []),
        ((Step(("Conv",), stage=1), Step()), [("conv2", "relu2")]),
    ],
)
def test_a_pattern_finds_every_chain_that_fits(pattern, expected):
    """Types, alternatives, wildcards, placement, names and attributes narrow the steps."""
    assert names(match(networks.convnet(), pattern)) == expected


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("", "does not look like"),
        ("Conv ->", "does not look like"),
        ("Conv Relu", "does not look like"),
        ("Conv{stage}", "does not look like key=value"),
        ("Conv{stage=one}", "does not give stage as an integer"),
        ("Conv|", "empty type"),
        ((), "no steps"),
    ],
)
def test_a_pattern_that_says_nothing_is_refused(pattern, said):
    """The sentence shows the part that cannot be read."""
    with refused(IRError, said):
        match(networks.convnet(), pattern)


def layered(width: int, depth: int) -> Graph:
    """Every op of a layer reads every op of the layer before."""
    ops, before = [], ["x"]
    for layer in range(depth):
        made = [f"t{layer}_{index}" for index in range(width)]
        ops += [Op("Sum", name, tuple(before), (name,)) for name in made]
        before = made
    return Graph("layered", ops, ["x"], before, [Tensor("x"), *(Tensor(op.name) for op in ops)])


def test_matching_is_bounded_where_there_are_exponentially_many_chains():
    """Too many matches are an error; chains that cannot be completed cost nothing."""
    graph = layered(8, 20)

    with pytest.raises(IRError, match="more than 10000 places"):
        match(graph, " -> ".join(["*"] * 20))
    assert match(graph, " -> ".join(["*"] * 19 + ["Relu"])) == []


@at_most(60)
@given(graphs(), st.randoms(use_true_random=False))
def test_a_renamed_and_reordered_graph_is_isomorphic(graph, random):
    """Names and the order of ops make no difference, and the mapping pairs equal ops."""
    positions = list(range(len(graph.ops)))
    random.shuffle(positions)
    where = {id(op): index for index, op in enumerate(graph.ops)}
    order = [where[id(op)] for op in in_order([graph.ops[index] for index in positions])]
    other = networks.renamed(graph, order)
    outcome = isomorphic(graph, other)

    assert outcome.verdict == ISOMORPHIC
    assert sorted(outcome.ops) == sorted(outcome.ops.values()) == sorted(positions)
    for left, right in outcome.ops.items():
        assert graph.ops[left].type == other.ops[right].type
        assert graph.ops[left].attributes == other.ops[right].attributes


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (networks.chain("Relu Tanh Relu"), networks.chain("Relu Relu Tanh"), DIFFERENT),
        (networks.chain("Relu Tanh"), networks.chain("Relu Tanh Tanh"), DIFFERENT),
        (networks.convnet(), networks.training(), DIFFERENT),
        (networks.convnet(), networks.convnet(), ISOMORPHIC),
    ],
)
def test_graphs_that_differ_are_told_apart(one, other, verdict):
    """The same ops in another order of reading are another graph."""
    assert isomorphic(one, other).verdict == verdict


def two_inputs(type: str, names: str) -> Graph:
    ops = [Op("Relu", "a", ("x",), ("a",)), Op(type, "b", tuple(names), ("b",))]
    return Graph("g", ops, ["x"], ["b"], map(Tensor, "xab"))


def test_inputs_of_commutative_ops_may_be_exchanged():
    """x + relu(x) is relu(x) + x, and a difference is not."""
    assert isomorphic(two_inputs("Add", "xa"), two_inputs("Add", "ax")).verdict == ISOMORPHIC
    assert isomorphic(two_inputs("Sub", "xa"), two_inputs("Sub", "ax")).verdict == DIFFERENT


def test_placement_and_attributes_may_be_left_out():
    """The same network on one IPU is isomorphic when placement does not count."""
    graph = networks.convnet()
    bare = Graph(
        "bare",
        [Op(op.type, "", op.inputs, op.outputs) for op in graph.ops],
        graph.inputs,
        graph.outputs,
        graph.tensors,
        graph.initializers,
    )

    assert isomorphic(graph, bare).verdict == DIFFERENT
    assert isomorphic(graph, bare, placement=False).verdict == DIFFERENT
    assert isomorphic(graph, bare, placement=False, attributes=False).verdict == ISOMORPHIC


def rings(*lengths: int) -> Graph:
    """Rings of Adds, each of which reads two neighbouring inputs: colours alone never tell such rings apart."""
    ops, given = [], []
    for ring, length in enumerate(lengths):
        inputs = [f"x{ring}_{index}" for index in range(length)]
        ops += [
            Op("Add", "", (inputs[index], inputs[(index + 1) % length]), (f"y{ring}_{index}",))
            for index in range(length)
        ]
        given += inputs
    made = [op.outputs[0] for op in ops]
    return Graph("rings", ops, given, made, map(Tensor, [*given, *made]))


def test_symmetrical_graphs_are_decided_by_search():
    """Two triangles are no hexagon, though every op looks alike."""
    assert isomorphic(rings(6), rings(3, 3)).verdict == DIFFERENT
    assert isomorphic(rings(3, 4, 3), rings(4, 3, 3)).verdict == ISOMORPHIC


def test_a_search_that_is_too_long_says_so():
    """On a small budget the outcome is neither yes nor no."""
    outcome = isomorphic(rings(60), rings(30, 30), budget=2_000)

    assert outcome.verdict == UNDECIDED
    assert "not decided after looking at 2000 edges" in outcome.sentence


def test_a_thousand_equal_branches_are_paired_within_the_budget():
    """Symmetry that any pairing satisfies is followed without backtracking."""

    def branches(order):
        ops = [Op("Relu", f"r{index}", ("x",), (f"t{index}",)) for index in order]
        ops.append(Op("Concat", "c", tuple(f"t{index}" for index in sorted(order)), ("y",)))
        return Graph("g", ops, ["x"], ["y"], map(Tensor, ["x", "y", *(f"t{index}" for index in order)]))

    count = 1_000
    assert isomorphic(branches(range(count)), branches(range(count)[::-1]), budget=200_000).verdict == ISOMORPHIC
