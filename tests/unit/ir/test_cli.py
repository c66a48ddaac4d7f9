from __future__ import annotations

import io
import json
import sys
from dataclasses import replace

import pytest

from ipu_conformance import cli
from ipu_conformance.ir import Op, Tensor, isomorphic, read, write
from ipu_conformance.ir.compare.isomorphism import ISOMORPHIC

from . import hlo_files, networks, paddle_files, tf_files


@pytest.fixture
def files(tmp_path):
    """Two graphs in files, one op apart."""
    write(networks.convnet(), tmp_path / "a.json")
    write(networks.without(networks.convnet(), "relu2"), tmp_path / "b.onnx")
    return tmp_path


class Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


def test_show_counts_and_lists_ops(files, capsys):
    """The table has counts per type, IPU and stage, and a line per op."""
    assert cli.main(["ir", "show", str(files / "a.json")]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[:7] == [
        "graph convnet: 8 ops, opset 11",
        "input   x  FLOAT (5, 1, 8, 8)",
        "output  y  FLOAT (5, 4)",
        "weights 4, 496 bytes",
        "types   Conv 2, Relu 2, Flatten 1, Gemm 1, IpuCopy 1, MaxPool 1",
        "ipus    0 4, 1 4",
        "stages  0 4, 1 4",
    ]
    assert lines[-1].split() == ["1", "1", "Gemm", "fc1", "y", "FLOAT", "(5,", "4)"]
    assert len(lines) == 9 + 8


def test_show_prints_the_same_as_json(files, capsys):
    """The JSON holds the same counts and ops."""
    assert cli.main(["ir", "show", "--json", str(files / "a.json")]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown["stages"] == {"0": 4, "1": 4}
    assert shown["weight_bytes"] == 496
    assert [op["name"] for op in shown["op_list"]] == [op.name for op in networks.convnet().ops]


def test_diff_exits_with_1_and_says_what_differs(files, capsys):
    """The verdict comes first; equal graphs exit with 0."""
    a, b = str(files / "a.json"), str(files / "b.onnx")

    assert cli.main(["ir", "diff", a, a]) == 0
    assert capsys.readouterr().out == "The graphs are the same.\n"
    assert cli.main(["ir", "diff", a, b]) == 1
    assert capsys.readouterr().out == (
        "The graphs differ: 1 in structure.\nstructure:\n  stage 1: Conv 'conv2' has no Relu after it\n"
    )


def test_diff_groups_what_differs_and_shows_some_of_each(files, capsys):
    """Structure comes before placement, attributes and names; --all lists what is left out."""
    graph = networks.convnet()
    extra = [Op("Relu", f"more{number}", ("y" if number == 0 else f"y{number}",), (f"y{number + 1}",), {}, 3, 5)
             for number in range(12)]  # fmt: skip
    tensors = [*graph.tensors.values(), *(Tensor(f"y{number + 1}", "FLOAT", (5, 4)) for number in range(12))]
    moved = [replace(op, ipu=2) if op.name == "conv1" else op for op in graph.ops]
    write(replace(graph, ops=(*moved, *extra), tensors={each.name: each for each in tensors}), files / "c.json")

    assert cli.main(["ir", "diff", str(files / "a.json"), str(files / "c.json")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert cli.main(["ir", "diff", "--all", str(files / "a.json"), str(files / "c.json")]) == 1
    every = capsys.readouterr().out.splitlines()

    assert lines[0] == "The graphs differ: 12 in structure, 1 in placement."
    assert (lines[1], lines[12], lines[13]) == ("structure:", "  and 2 more; --all lists them", "placement:")
    assert len(lines) == 15
    assert len(every) == 16
    assert lines[0] == every[0]


def test_draw_shows_stages_with_what_passes_between_them(files):
    """A box a stage, by IPU, holds the counts of its ops, and an arrow names what is copied."""
    target = files / "stages.dot"

    assert cli.main(["ir", "draw", "--stages", str(files / "a.json"), "-o", str(target)]) == 0

    text = target.read_text()
    assert text.count("subgraph cluster_ipu") == 2
    assert 'label="stage 0, 4 ops' in text
    assert text.count("->") == 1


def test_diff_ignores_names_when_asked(files, capsys):
    """A renamed graph is the same structurally."""
    write(networks.renamed(networks.convnet()), files / "c.json")

    assert cli.main(["ir", "diff", str(files / "a.json"), str(files / "c.json")]) == 1
    assert cli.main(["ir", "diff", "--structural", str(files / "a.json"), str(files / "c.json")]) == 0


def test_convert_follows_extensions_and_options(files, capsysbinary, monkeypatch):
    """The extension or --to tells the format; - is standard input and output."""
    assert cli.main(["ir", "convert", str(files / "a.json"), str(files / "c.onnx")]) == 0
    assert read(files / "c.onnx") == networks.convnet()

    monkeypatch.setattr(sys, "stdin", Stdin((files / "c.onnx").read_bytes()))
    assert cli.main(["ir", "convert", "-", "-", "--to", "json"]) == 0
    assert capsysbinary.readouterr().out == (files / "a.json").read_bytes()

    assert cli.main(["ir", "convert", str(files / "a.json"), str(files / "data"), "--to", "popart"]) == 0
    assert (files / "data").read_bytes().startswith(b'{"maingraph":[{')


def test_draw_writes_dot(files):
    """A .dot file is written without Graphviz."""
    assert cli.main(["ir", "draw", str(files / "a.json"), "-o", str(files / "out.dot")]) == 0
    assert (files / "out.dot").read_text().startswith('digraph "convnet" {')


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "missing.onnx"], "missing.onnx cannot be read"),
        (["diff", "-", "-"], "give one of them as a file"),
        (["draw", "{a}", "-o", "out.onnx"], "is not a drawing"),
        (["convert", "{a}", "-"], "name the format with --to"),
        (["convert", "{a}", "out.txt"], "none of the extensions"),
        (["convert", "{a}", "out", "--to", "yaml"], "not written as 'yaml'"),
        (["show", "--limit", "10", "{a}"], "more than 10 bytes"),
        (["show", "--from", "popart", "{a}"], "beside 'maingraph'"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_2(files, capsys, monkeypatch, arguments, said):
    """Nothing is written, and the sentence says what to do."""
    monkeypatch.chdir(files)
    before = sorted(path.name for path in files.iterdir())

    assert cli.main(["ir", *(argument.format(a=files / "a.json") for argument in arguments)]) == 2

    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert sorted(path.name for path in files.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "data", "types", "expected"),
    [
        ("net.pdmodel", paddle_files.layer(), "Add 1, MatMul 1, Tanh 1", networks.layer()),
        ("net.pb", tf_files.layer(), "Add 1, MatMul 1, Tanh 1", networks.layer()),
        ("net.pbtxt", tf_files.TEXT.encode(), "Add 1, MatMul 1, Tanh 1", networks.layer()),
        ("net.hlo", hlo_files.LAYER.encode(), "Constant 2, Expand 1, MatMul 1, Max 1", None),
    ],
)
def test_files_of_frameworks_are_shown_drawn_converted_and_compared(tmp_path, capsys, name, data, types, expected):
    """Every command takes the file of a framework like any other graph."""
    source, converted = tmp_path / name, tmp_path / "net.onnx"
    source.write_bytes(data)

    assert cli.main(["ir", "show", str(source)]) == 0
    assert cli.main(["ir", "convert", str(source), str(converted)]) == 0
    assert cli.main(["ir", "draw", str(source), "-o", str(tmp_path / "net.dot")]) == 0
    assert cli.main(["ir", "diff", str(source), str(source)]) == 0

    assert f"types   {types}" in capsys.readouterr().out
    assert isomorphic(read(converted), expected or read(source)).verdict == ISOMORPHIC


def test_a_graph_has_no_difference_from_itself_as_text(tmp_path):
    """``ir diff`` compares a binary graph of TensorFlow with the same one as text."""
    (tmp_path / "net.pb").write_bytes(tf_files.layer())
    (tmp_path / "net.pbtxt").write_text(tf_files.TEXT)

    assert cli.main(["ir", "diff", str(tmp_path / "net.pb"), str(tmp_path / "net.pbtxt")]) == 0
