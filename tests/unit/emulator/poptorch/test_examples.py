"""The example programs run unmodified where ``import poptorch`` leads to the emulator."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any, List

import pytest

from ipu_conformance.emulator import hook

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "poptorch"
WORDS = {"sdk1_digits.py": ["--epochs", "2"], "sdk3_digits.py": ["--epochs", "2", "--sync"]}


@pytest.mark.usefixtures("no_hook")
@pytest.mark.parametrize("name", WORDS)
def test_an_example_trains_and_infers_from_what_it_saved(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The loss falls, and far more of the digits than one in eight are told apart by the restored model."""
    hook.install("poptorch")
    monkeypatch.setattr(sys, "argv", [name, "--folder", str(tmp_path), *WORDS[name]])

    runpy.run_path(str(EXAMPLES / name), run_name="__main__")

    printed = capsys.readouterr().out
    losses: List[float] = [float(value) for value in re.findall(r"loss (\S+)", printed)]
    (accuracy,) = re.findall(r"accuracy ([0-9.]+)%", printed)
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert float(accuracy) > 50
    assert len(list(tmp_path.iterdir())) == 1
