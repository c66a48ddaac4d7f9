"""``ipu-conformance coverage`` tells what is asked, what is not, and why."""

from __future__ import annotations

import csv
import io

import pytest

from ipu_conformance.cli import main
from ipu_conformance.ops import TABLE
from ipu_conformance.ops.cases import cases
from ipu_conformance.ops.row import LIBRARIES


def _printed(capsys, *arguments):
    code = main(["coverage", *arguments])
    return code, capsys.readouterr().out


def test_every_op_and_the_number_of_cases_are_shown(capsys):
    """A line for every op of the table, and for each framework how many ops and cases there are."""
    code, text = _printed(capsys)

    assert code == 0
    assert {line.split()[0] for line in text.splitlines() if line} >= set(TABLE)
    for framework in LIBRARIES:
        count = sum(case.framework == framework for direction in ("forward", "gradient") for case in cases(direction))
        assert f"{framework}: " in text
        assert f" ops, {count} cases" in text


def test_every_combination_is_a_line_with_its_state(capsys):
    """A gap has a reason and an asked combination has none."""
    code, text = _printed(capsys, "--op", "max_pool", "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))

    assert code == 0
    assert {row["state"] for row in rows} == {"asked", "gap", "open", "several"}
    assert all(bool(row["why"]) == (row["state"] != "asked") for row in rows)


@pytest.mark.parametrize("option", ["--gaps", "--open"])
def test_reasons_are_listed_with_their_ops(capsys, option):
    """What is not asked or left open stands below its reason."""
    code, text = _printed(capsys, option)

    assert code == 0
    assert any(line.startswith("  ") and ": " in line for line in text.splitlines())
    assert any(not line.startswith(" ") and line.endswith(":") for line in text.splitlines())


def test_an_unknown_op_is_one_sentence(capsys):
    """The command exits with 2 and names what there is."""
    assert main(["coverage", "--op", "nope"]) == 2

    assert "the op table has no row 'nope'" in capsys.readouterr().err


@pytest.mark.parametrize("front_end", list(LIBRARIES))
def test_every_framework_is_asked_for_150_ops(front_end):
    """The table is broad in every framework."""
    asked = {case.row.name for case in cases("forward") if case.framework == front_end}

    assert len(asked) >= 150
