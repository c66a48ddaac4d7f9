"""The command that prints how well the oracle and its witnesses agree."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ipu_conformance.oracle.op import Term
from ipu_conformance.oracle.ops import OPS
from tests.unit.oracle.installed import installed
from tests.unit.oracle.witnesses import SCIPY, TORCH, WITNESSES, report
from tests.unit.oracle.witnesses import __main__ as command

pytestmark = pytest.mark.filterwarnings("ignore")  # the command silences the frameworks' warnings itself


@pytest.fixture(autouse=True)
def only_torch_and_scipy(monkeypatch):
    """Two witnesses are enough here, and quick to import."""
    installed("torch")
    for name in ("tensorflow", "paddle"):
        monkeypatch.setattr(WITNESSES[name], "installed", lambda: False)


def test_table_names_witnesses_and_missing_frameworks(capsys):
    """The table has a line per op, and says what is not installed and what is not asked."""
    assert command.main(["--op", "softmax", "--op", "relu", "--samples", "3"]) == 0

    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].split()[:2] == ["op", "family"]
    assert lines[1].split() == ["relu", "activation", "torch", "exact", "exact", "exact", "exact"]
    assert lines[2].split()[:4] == ["softmax", "softmax", "scipy", "torch"]
    assert "not installed, and so not asked: tensorflow, paddle" in printed.out
    assert "1 of 2 ops are bit-exact by specification" in printed.out
    assert "2/2 softmax" in printed.err


def test_json_holds_every_ratio(capsys):
    """As JSON every witness has its worst ratio for each part and type."""
    assert command.main(["--op", "sigmoid", "--samples", "2", "--json"]) == 0

    (line,) = json.loads(capsys.readouterr().out)["ops"]
    assert line["agreed"] == ["scipy", "torch"]
    assert set(line["worst"]["torch"]) == {f"{part} {dtype}" for part in report.PARTS for dtype in report.DTYPES}
    assert all(0 <= ratio < 1 for ratio in line["worst"]["torch"].values())


def test_family_selects_its_ops(capsys):
    """A family names all its ops, in alphabetical order."""
    assert [op.name for op in command.chosen([], ["softmax"])] == ["log_softmax", "softmax"]
    assert len(command.chosen([], [])) == len(OPS)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--op", "nope"], "nope"), (["--family", "nope"], "nope"), (["--samples", "0"], "--samples")],
)
def test_wrong_arguments_are_refused(arguments, word, capsys):
    """What does not exist ends the command with 2 and one sentence."""
    assert command.main(arguments) == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("sigmoid", {"forward": lambda x: np.tanh(x)}, "disagrees"),
        ("sigmoid", {"vjp": lambda g, x: (g,)}, "disagrees"),
        ("relu", {"forward": lambda x: x[..., None], "vjp": None}, "disagrees"),
        ("sigmoid", {"error": lambda y, x: [[Term(1e5 * np.ones_like(y))]]}, "1000 times too wide"),
    ],
)
def test_wrong_op_fails_the_command(name, change, fault, capsys):
    """A wrong function, a wrong gradient, a wrong shape and too wide a bound each make the command fail."""
    line = report.examine(replace(OPS[name], **change), [TORCH], samples=2, seed=0)

    assert command._verdict([line]) == 1
    assert fault in capsys.readouterr().err


def test_op_that_nobody_witnesses_fails_the_command(capsys):
    """An op without a witness is no success."""
    assert command._verdict([report.examine(OPS["conv_transpose"], [SCIPY], samples=1, seed=0)]) == 1
    assert "no witness was asked" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op_has_a_witness(name):
    """Every op is implemented by at least one library that is not ours."""
    assert [witness.name for witness in WITNESSES.values() if name in witness.rows]


def test_rows_belong_to_ops():
    """No witness has a row for an op that does not exist."""
    assert {name for witness in WITNESSES.values() for name in witness.rows} <= set(OPS)
