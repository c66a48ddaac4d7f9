"""``ipu-conformance ir run`` executes a dump on arrays from a file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest

from ipu_conformance import cli
from ipu_conformance.cli import ir as command
from ipu_conformance.interpreter import ENGINES
from ipu_conformance.ir import Graph, Op, Tensor, write
from ipu_conformance.run import CHOICES

from .test_machine import STREAM, pipeline, regression


def test_the_command_offers_what_there_is() -> None:
    """Engines and schedules of the command are those of the interpreter and of runs."""
    assert list(command.ENGINES) == list(ENGINES)
    assert CHOICES["schedule"] == command.SCHEDULES


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A training and its inputs."""
    write(regression(), tmp_path / "training.json")
    np.savez(tmp_path / "inputs.npz", x=STREAM, w=np.array(100.0))
    return tmp_path


def test_run_writes_outputs_and_variables(files: Path, capsys: Any) -> None:
    """Outputs have axes for updates, turns and replicas; what the training has changed is written beside them."""
    words = ["ir", "run", str(files / "training.json"), "--inputs", str(files / "inputs.npz")]

    assert cli.main([*words, "-o", str(files / "out.npz")]) == 0

    with np.load(files / "out.npz") as out:
        assert out["y"].shape == STREAM.shape
        assert float(out["w"]) == 100.0 - 0.5 * STREAM.sum()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["variable", "w"] in [row[:2] for row in rows]


@pytest.mark.parametrize("format", ["popart", "json", "onnx"])
def test_run_reads_what_ir_reads(tmp_path: Path, format: str, capsys: Any) -> None:
    """A dump in PopART's JSON computes what the same graph in JSON or ONNX does."""
    path = tmp_path / f"dump.{'onnx' if format == 'onnx' else 'json'}"
    graph = pipeline() if format != "onnx" else _forward()
    write(graph, path, format)
    np.savez(tmp_path / "inputs.npz", x=np.arange(5.0))

    assert cli.main(["ir", "run", str(path), "--inputs", str(tmp_path / "inputs.npz"), "-o", str(tmp_path / "o")]) == 0

    with np.load(tmp_path / "o.npz") as out:
        np.testing.assert_array_equal(out["y"].ravel(), (2 * np.arange(5.0)) ** 2)


def _forward() -> Any:
    """The pipeline before a compiler has added its copies, which ONNX has no op for."""
    from dataclasses import replace

    graph = pipeline()
    ops = tuple(replace(op, inputs=tuple("t" if name == "t_c1" else name for name in op.inputs)) for op in graph.ops)
    kept = tuple(op for op in ops if op.type != "IpuCopy")
    return replace(graph, ops=kept, tensors={name: each for name, each in graph.tensors.items() if name != "t_c1"})


def _array() -> bytes:
    """A file with one array, which is no archive."""
    buffer = io.BytesIO()
    np.save(buffer, STREAM)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("inputs.npz", b"no arrays", "cannot be read as arrays"),
        ("inputs.npz", b"", "cannot be read as arrays: No data left in file"),
        ("inputs.npz", b"PK\x03\x04", "cannot be read as arrays"),
        ("inputs.npz", _array(), "holds one array without a name"),
        ("missing.npz", None, "cannot be read as arrays: No such file"),
    ],
)
def test_bad_inputs_are_one_sentence(files: Path, capsys: Any, name: str, content: Any, sentence: str) -> None:
    """A file that is no archive of arrays, or is not there, ends with a sentence and a non-zero code."""
    if content is not None:
        (files / name).write_bytes(content)

    assert cli.main(["ir", "run", str(files / "training.json"), "--inputs", str(files / name)]) != 0

    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"x": STREAM}, "'w' () has no value in the dump: give it among the inputs."),
        (
            {"x": STREAM, "w": 1.0, "v": 2.0},
            "'v' is given, and graph 'g' has no such input or weight: it takes x, Accum___w, w.",
        ),
        ({"x": STREAM, "w": np.ones((2, 2))}, "'w' is given with shape (2, 2): it takes ()"),
        ({"x": STREAM.astype(str), "w": 1.0}, "'x' is given as <U32: it takes numbers of dtype FLOAT."),
        ({"x": STREAM.astype(complex), "w": 1.0}, "'x' is given as complex128"),
    ],
)
def test_unfit_arrays_are_one_sentence(files: Path, capsys: Any, arrays: Dict[str, Any], sentence: str) -> None:
    """A missing or unknown array, another shape, and what is not a real number are refused before anything runs."""
    np.savez(files / "unfit.npz", **arrays)
    words = ["ir", "run", str(files / "training.json"), "--inputs", str(files / "unfit.npz")]

    assert cli.main([*words, "-o", str(files / "out.npz")]) != 0

    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert "\n" not in said
    assert not (files / "out.npz").exists()


def test_an_integer_tensor_takes_whole_numbers(tmp_path: Path, capsys: Any) -> None:
    """Labels that are not whole are not rounded in silence."""
    graph = Graph("g", (Op("Identity", inputs=("x",), outputs=("y",)),), ("x",), ("y",),
                  (Tensor("x", "INT32", (2,)), Tensor("y", "INT32", (2,))))  # fmt: skip
    write(graph, tmp_path / "labels.json")
    words = ["ir", "run", str(tmp_path / "labels.json"), "--inputs", str(tmp_path / "x.npz")]

    np.savez(tmp_path / "x.npz", x=np.array([3.0, 4.0]))
    assert cli.main(words) == 0
    np.savez(tmp_path / "x.npz", x=np.array([3.0, 4.5]))
    assert cli.main(words) != 0

    assert "'x' is given with fractions: it takes whole numbers of dtype INT32." in capsys.readouterr().err


@pytest.mark.parametrize("output", ["", "-", ".", "nowhere/out.npz", "folder.npz"])
def test_an_output_that_cannot_be_written_is_one_sentence(
    files: Path, capsys: Any, monkeypatch: Any, output: str
) -> None:
    """A folder, standard output and a place that is not there are refused, and no file is left behind."""
    monkeypatch.chdir(files)
    (files / "folder.npz").mkdir()
    before = sorted(files.rglob("*"))

    assert cli.main(["ir", "run", "training.json", "--inputs", "inputs.npz", "-o", output]) != 0

    assert f"{output!r} cannot be written" in capsys.readouterr().err
    assert sorted(files.rglob("*")) == before


def test_a_write_that_fails_leaves_the_older_file(files: Path, capsys: Any, monkeypatch: Any) -> None:
    """Where the disk is full the archive of an earlier run is still whole, and nothing lies beside it."""
    monkeypatch.chdir(files)
    words = ["ir", "run", "training.json", "--inputs", "inputs.npz", "-o", "out.npz"]
    assert cli.main(words) == 0
    before = {path.name: path.read_bytes() for path in files.iterdir()}

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    assert cli.main(words) != 0

    assert "out.npz cannot be written: No space left on device" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


def test_an_engine_that_is_not_installed_is_one_sentence(files: Path, capsys: Any, monkeypatch: Any) -> None:
    """ONNX Runtime is an extra: without it the command says how to get it."""
    import sys

    write(_forward(), files / "forward.json")
    np.savez(files / "x.npz", x=np.arange(5.0))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    words = ["ir", "run", str(files / "forward.json"), "--inputs", str(files / "x.npz"), "--engine", "onnxruntime"]

    assert cli.main(words) != 0

    assert "pip install ipu-conformance[onnxruntime]" in capsys.readouterr().err


def test_onnx_runtime_refuses_ops_of_a_training(files: Path, capsys: Any) -> None:
    """The op that it does not know is named, never passed over."""
    words = ["ir", "run", str(files / "training.json"), "--inputs", str(files / "inputs.npz")]

    assert cli.main([*words, "--engine", "onnxruntime"]) != 0

    assert "Accumulate that makes 'sum' is not known to the engine onnxruntime" in capsys.readouterr().err
