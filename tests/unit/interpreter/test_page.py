"""The page on graphs shows what its commands print."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any, List

import pytest

from ipu_conformance.cli import main
from ipu_conformance.emulator import hook

ROOT = Path(__file__).resolve().parents[3]
NUMBER = re.compile(r"-?\d+\.\d+")


def shown(command: str) -> List[str]:
    """The lines that the page shows after a command, without what it leaves out."""
    page = (ROOT / "docs" / "ir.md").read_text(encoding="utf-8")
    (after,) = re.findall(rf"\$ ipu-conformance {re.escape(command)}\n((?:    [^$\n].*\n)*)", page)
    return [line.strip() for line in after.splitlines() if line.strip() != "…"]


def rounded(line: str) -> str:
    """A line with its numbers to four digits: those of a device are of 32 bits."""
    return " ".join(NUMBER.sub(lambda number: f"{float(number[0]):.4f}", line).split())


@pytest.mark.usefixtures("no_hook")
def test_the_net_of_the_page_is_trained_drawn_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The example program prints the trained bias, and the run of its dump has it."""
    pytest.importorskip("torch")
    hook.install("poptorch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POPTORCH_EXPORT_PROTO_FILE", "")
    runpy.run_path(str(ROOT / "examples" / "one_net" / "poptorch_net.py"), run_name="__main__")
    trained = capsys.readouterr().out
    assert main(["ir", "run", "training.onnx", "--inputs", "inputs.npz", "-o", "out.npz"]) == 0
    run = [rounded(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["ir", "draw", "--stages", "training.onnx", "-o", "stages.dot"]) == 0

    assert shown("emulate examples/one_net/poptorch_net.py") == trained.splitlines()
    lines = [rounded(line) for line in shown("ir run training.onnx --inputs inputs.npz -o out.npz")]
    assert [line for line in lines if line not in run] == []
    assert 'box0 -> box1 [label="relu_c1 (2, 4)"];' in (tmp_path / "stages.dot").read_text(encoding="utf-8")
