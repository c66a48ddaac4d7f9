from __future__ import annotations

import re

import pytest
from hypothesis import given

from ipu_conformance.ir import Graph, IRError, Op, Tensor, dumps, write
from ipu_conformance.ir.writers import dot
from tests.unit.examples import at_most

from . import networks
from .strategies import graphs, texts

STRING = r'"(?:[^"\\\n]|\\.)*"'


def test_each_ipu_and_stage_has_its_box():
    """Clusters nest stages in IPUs, and every op stands in its own."""
    text = dumps(networks.convnet(), "dot").decode()
    ipu1 = text[text.index("cluster_ipu1 ") :]

    boxes = ["ipu0", "ipu0_stage0", "ipu1", "ipu1_stage1"]
    assert re.findall(r"subgraph cluster_(\w+)", text) == boxes
    assert re.findall(r'label="(\w+)\\n', ipu1[: ipu1.index("}")]) == ["Conv", "Relu", "Flatten", "Gemm"]
    assert 'op4 -> op5 [label="FLOAT (5, 3, 2, 2)"];' in text


def test_ops_without_placement_stand_outside_all_boxes():
    """A graph without placement has no clusters."""
    assert b"cluster" not in dumps(networks.chain("Relu Tanh"), "dot")


@at_most(60)
@given(graphs())
def test_every_line_is_of_the_few_forms_that_dot_reads(graph):
    """Whatever the names hold, quotes balance, braces nest, and there is one node per op and one edge per input."""
    lines = [line.strip() for line in dumps(graph, "dot").decode("utf-8").split("\n")]
    node = rf"\w+ \[(?:\w+=(?:{STRING}|\w+),? ?)*\];"
    forms = rf"digraph {STRING} {{|subgraph \w+ {{|label={STRING};|}}||{node}|\w+ -> \w+ \[label={STRING}\];"

    assert [line for line in lines if not re.fullmatch(forms, line)] == []
    assert sum(line.endswith("{") for line in lines) == sum(line == "}" for line in lines)
    assert sum(bool(re.match(r"op\d+ \[", line)) for line in lines) == len(graph.ops)
    edges = sum(bool(name) for op in graph.ops for name in op.inputs) + len(graph.outputs)
    assert sum(" -> " in re.sub(STRING, "", line) for line in lines) == edges


@at_most(100)
@given(texts)
def test_quoted_text_is_drawn_as_it_was_given(text):
    """Undoing what Graphviz does to a label gives the text, with what cannot be drawn as its code."""
    inside = dot.quoted(text)[1:-1]
    drawn = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], inside).replace("&amp;", "&")

    shown = "".join(c if c.isprintable() or c == "\n" else f"U+{ord(c):04X}" for c in text)
    assert drawn == shown


def fake_dot(tmp_path, monkeypatch, script):
    program = tmp_path / "bin" / "dot"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_svg_is_what_graphviz_makes_of_the_dot_text(tmp_path, monkeypatch):
    """The program dot is given the DOT text and asked for SVG; its output is the file."""
    fake_dot(tmp_path, monkeypatch, 'echo "<svg>$1"; cat; echo "</svg>"')
    graph = networks.convnet()
    write(graph, tmp_path / "g.svg")

    assert (tmp_path / "g.svg").read_bytes() == b"<svg>-Tsvg\n" + dumps(graph, "dot") + b"</svg>\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo broken line >&2; exit 3", "exit code 3: broken line"), ("cat > /dev/null", "exit code 0: it said nothing")],
)
def test_a_failure_of_graphviz_is_told(tmp_path, monkeypatch, script, said):
    """What dot says is in the sentence, and no file is left."""
    fake_dot(tmp_path, monkeypatch, script)

    with pytest.raises(IRError, match=said):
        write(networks.convnet(), tmp_path / "g.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_graphviz_that_takes_too_long_is_given_up(tmp_path, monkeypatch):
    """A drawing that never ends is an error after its time limit."""
    fake_dot(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(dot, "DOT_SECONDS", 0.2)

    with pytest.raises(IRError, match=r"took more than 0.2 seconds"):
        dumps(networks.convnet(), "svg")


def test_svg_without_graphviz_says_how_to_get_it(tmp_path, monkeypatch):
    """One sentence names the program, how to install it and what works without it."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(IRError, match=r"needs the program dot of Graphviz.*install graphviz.*\.dot file"):
        dumps(networks.convnet(), "svg")


def test_a_name_that_looks_like_markup_stays_text():
    """Entities, quotes and backslashes in names are escaped."""
    graph = Graph("g", [Op("Relu", 'a"b\\N&lt;', ("x",), ("y",))], ["x"], ["y"], [Tensor("x"), Tensor("y")])

    assert 'label="Relu\\na\\"b\\\\N&amp;lt;"' in dumps(graph, "dot").decode()
