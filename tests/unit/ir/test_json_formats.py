from __future__ import annotations

import json

import pytest
from hypothesis import given

from ipu_conformance.ir import Graph, IRError, Literal, Op, Tensor, dumps, read
from ipu_conformance.ir.formats import canonical, popart
from tests.unit.examples import at_most
from tests.unit.refusals import refused

from . import networks
from .strategies import graphs

SPECIFIED = (
    b'{"maingraph":[{"type":"MatMul","name":"layer2/0/MatMul",'
    b'"inputs":[{"name":"input","shape":"[5 40]","type":"FLOAT","index":"0"}],'
    b'"outputs":[{"name":"t1","index":"0"}],'
    b'"attributes":{"__ipu_number":"0","__pipeline_stage":"0","recompute":"NO"}}]}'
)
"""The form that the specification of the dump shows."""


@at_most(60)
@given(graphs())
def test_canonical_json_holds_every_graph_completely(graph):
    """What is written as canonical JSON is read back equal, and written again it is the same bytes."""
    data = dumps(graph, "json")

    assert read(data) == graph
    assert dumps(read(data), "json") == data


def test_canonical_json_is_the_same_text_for_the_same_graph():
    """Tensors and keys are sorted, so the order in which they were given does not show."""
    graph = networks.convnet()
    shuffled = Graph(
        graph.name,
        graph.ops,
        graph.inputs,
        graph.outputs,
        list(graph.tensors.values())[::-1],
        dict(list(graph.initializers.items())[::-1]),
    )

    assert dumps(shuffled, "json") == dumps(graph, "json")


def test_canonical_json_has_one_line_per_op_and_tensor():
    """A golden file changes by one line when one op changes."""
    graph = networks.convnet()
    lines = dumps(graph, "json").decode().splitlines()

    assert sum('"type": ' in line for line in lines) == len(graph.ops)
    assert '"x": ["FLOAT", [5, 1, 8, 8]],' in lines
    assert '{"type": "Relu", "name": "relu2", "inputs": ["c2"], "outputs": ["r2"], "ipu": 1, "stage": 1},' in lines
    assert json.loads("\n".join(lines))["version"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 1"),
        ({"version": True}, "version 1"),
        ({"format": "other"}, "format 'ipu_conformance.ir'"),
        ({"extra": 1}, "the unknown key 'extra'"),
        ({"ops": {}}, "'ops' is an object; it should be a list"),
        ({"ops": [7]}, "op 0 is a number"),
        ({"ops": [{"type": "Relu"}]}, "op 0 lacks the key 'inputs'"),
        ({"tensors": {"x": ["FLOAT"]}}, "not a list of a dtype and a shape"),
        ({"tensors": {"x": ["FLOAT", "55"]}}, "it should be a list"),
        ({"initializers": {"x": "?"}}, "is not base64"),
        ({"opset": "11"}, "opset '11'"),
        ({"name": None}, "is a NoneType"),
    ],
)
def test_canonical_json_with_a_fault_is_refused(change, said):
    """The sentence names the place that is wrong."""
    document = {**json.loads(dumps(networks.convnet(), "json")), **change}

    with refused(IRError, said):
        canonical.load(document)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"float": "nan"}, "neither 'inf' nor '-inf'"),
        ({"float": [1]}, "neither 'inf' nor '-inf'"),
        (None, "is not a number"),
        ([[1]], "is not a number"),
        ({"data": "AA==", "dtype": "UINT8"}, "lacks the key 'shape'"),
        ({"data": None, "dtype": "UINT8", "shape": [1]}, "has no values"),
        ({"data": "AA==", "dtype": "UINT8", "shape": [2]}, "takes 2 bytes"),
    ],
)
def test_an_attribute_with_a_fault_is_refused(value, said):
    """Attributes are numbers, strings, lists of one kind, or tensors."""
    document = json.loads(dumps(networks.convnet(), "json"))
    document["ops"][0]["attributes"] = {"a": value}

    with refused(IRError, said):
        canonical.load(document)


def test_the_specified_dump_is_read():
    """Names, shapes, placement and attributes of PopART's own dump arrive in the graph."""
    graph = read(SPECIFIED)

    op = Op("MatMul", "layer2/0/MatMul", ("input",), ("t1",), {"recompute": "NO"}, ipu=0, stage=0)
    assert graph == Graph("maingraph", [op], ["input"], ["t1"], [Tensor("input", "FLOAT", (5, 40)), Tensor("t1")])


def test_the_specified_dump_is_written():
    """Written again it is the same bytes: compact, all scalars strings."""
    assert dumps(read(SPECIFIED), "popart") == SPECIFIED


def popart_holds(graph: Graph) -> Graph:
    """What PopART JSON keeps of a graph, told independently of the code that writes it."""

    def value(attribute):
        if isinstance(attribute, Literal):
            return f"{attribute.dtype} [{' '.join(map(str, attribute.shape))}]"
        if isinstance(attribute, tuple) and any(isinstance(item, str) for item in attribute):
            attribute = f"[{' '.join(attribute)}]"
        return popart.attribute_value(attribute) if isinstance(attribute, str) else attribute

    def stripped(slots):
        while slots and not slots[-1]:
            slots = slots[:-1]
        return slots

    ops = [
        Op(
            op.type,
            op.name,
            stripped(op.inputs),
            stripped(op.outputs),
            {name: value(held) for name, held in op.attributes.items()},
            op.ipu,
            op.stage,
        )
        for op in graph.ops
    ]
    read_names = list(dict.fromkeys(name for op in ops for name in op.inputs if name))
    made = [name for op in ops for name in op.outputs if name]
    return Graph(
        "maingraph",
        ops,
        [name for name in read_names if name not in made],
        [name for name in made if name not in read_names],
        [graph.tensors[name] if name in read_names else Tensor(name) for name in {*read_names, *made}],
    )


@at_most(60)
@given(graphs())
def test_popart_json_holds_what_its_module_says(graph):
    """Ops, order, wiring, placement, read tensors and attributes as text come back; the rest is as documented."""
    assert read(dumps(graph, "popart")) == popart_holds(graph)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("007", "007"),
        ("0.001000", 0.001),
        ("1e-05", 1e-5),
        ("inf", float("inf")),
        ("nan", "nan"),
        ("[1 1]", (1, 1)),
        ("[]", ()),
        ("[a b]", "[a b]"),
        ("[1  2]", "[1  2]"),
        ("", ""),
        ("NO", "NO"),
        ("9223372036854775808", "9223372036854775808"),
        ("9" * 5000, "9" * 5000),
        ("٣", "٣"),
    ],
)
def test_attribute_text_is_read_as_the_number_it_looks_like(text, value):
    """Numbers and lists of numbers are recognised, everything else stays text."""
    found = popart.attribute_value(text)

    assert found == value
    assert type(found) is type(value)


def op_with(**changes):
    op = json.loads(SPECIFIED)["maingraph"][0]
    return json.dumps({"maingraph": [{**op, **changes}]}).encode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"maingraph":[],"subgraph":[]}', "beside 'maingraph'"),
        (b'{"maingraph":{}}', "it should be a list"),
        (op_with(inputs=[{"name": "x", "shape": "5 40", "index": "0"}]), "look like '[5 40]'"),
        (op_with(inputs=[{"name": "x", "shape": "[5 4x]", "index": "0"}]), "the dimension '4x'"),
        (op_with(inputs=[{"name": "x", "shape": "[" + "9" * 6000 + "]", "index": "0"}]), "integer of 64 bits"),
        (op_with(inputs=[{"name": "x", "shape": [5], "index": "0"}]), "it should be a string"),
        (op_with(inputs=[{"name": "x", "index": "999999999"}]), "positions count up from 0"),
        (op_with(inputs=[{"name": "x", "index": "-1"}]), "positions count up from 0"),
        (op_with(inputs=[{"name": "x", "index": "0"}, {"name": "z", "index": "0"}]), "positions count up from 0"),
        (op_with(inputs=[{"name": "x", "type": "FLOAT32", "index": "0"}]), "dtype 'FLOAT32'"),
        (
            op_with(inputs=[{"name": "x", "shape": f"[{n}]", "index": str(n)} for n in (0, 1)]),
            "described twice in different ways",
        ),
        (op_with(attributes={"__ipu_number": "one"}), "it should be an integer"),
        (op_with(attributes={"__ipu_number": 1}), "it should be a string"),
        (op_with(attributes={"__pipeline_stage": "-1"}), "stage -1"),
        (op_with(name=None), "'name' of op 0 is null"),
        (op_with(outputs=[{"name": "input", "index": "0"}]), "cycle"),
    ],
)
def test_a_popart_dump_with_a_fault_is_refused(data, said):
    """The sentence names the place that is wrong."""
    with refused(IRError, said):
        read(data)


def test_omitted_inputs_keep_their_positions():
    """An input that is left out is a gap in the indices, and gaps take bounded memory."""
    op = Op("Clip", "clip", ("x", "", "high"), ("y",))
    graph = Graph("maingraph", [op], ["x", "high"], ["y"], map(Tensor, ("x", "high", "y")))

    assert read(dumps(graph, "popart")) == graph
    wide = Graph("g", [Op("A", "", ("",) * 65 + ("x",), ())], ["x"], [], [Tensor("x")])
    with pytest.raises(IRError, match="omits more than 64"):
        dumps(wide, "popart")
