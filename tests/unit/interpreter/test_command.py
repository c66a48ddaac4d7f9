"""``ipu-conformance ir run`` executes a dump on arrays from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_conformance import cli
from ipu_conformance.cli import ir as command
from ipu_conformance.interpreter import ENGINES
from ipu_conformance.ir import write
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


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("inputs.npz", b"no arrays", "cannot be read as arrays"),
        ("missing.npz", None, "cannot be read as arrays"),
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
