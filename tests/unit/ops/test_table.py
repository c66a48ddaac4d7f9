"""The op table: a row for every op, a call or a reason for every framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ipu_conformance.ops import TABLE, Inexpressible, Missing, Row, TableError
from ipu_conformance.ops.row import Table, refusing
from ipu_conformance.oracle.ops import OPS

LIBRARIES = ("torch", "tensorflow", "paddle")


def _nothing(module, x):
    return x


def test_every_op_has_a_row():
    """The table holds the oracle's ops, and no others."""
    assert set(TABLE) == set(OPS)
    assert all(TABLE[name].op is op for name, op in OPS.items())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_framework_without_an_op_has_a_reason(library):
    """A row that is missing says why, and is refused with that reason when it is called."""
    missing = [row for row in TABLE.values() if row.missing(library) is not None]

    assert len(missing) < 5
    for row in missing:
        with pytest.raises(Inexpressible, match=r"\w+ \w+"):
            row.call(library)


def test_an_op_has_one_row():
    """A second row, and one for an op that the oracle does not know, are refused."""
    table = Table()
    row = Row("relu", _nothing, _nothing, Missing("Paddle has no such thing"))
    table.add(row)

    assert (table["relu"], list(table), len(table), "relu" in table) == (row, ["relu"], 1, True)
    with pytest.raises(TableError, match="two rows"):
        table.add(row)
    with pytest.raises(TableError, match="no row 'tanh'"):
        table["tanh"]


def test_a_call_refuses_what_it_cannot_express():
    """A guarded call answers with its reason where its condition holds, and calls elsewhere."""
    guarded = refusing(_nothing, lambda x: x < 0, "numbers below 0 are not taken")

    assert guarded(None, 3) == 3
    with pytest.raises(Inexpressible, match="below 0"):
        guarded(None, -3)


def test_the_table_imports_no_framework():
    """Collecting cases from the table stays quick."""
    program = "import sys, ipu_conformance.ops; print([n for n in sys.argv[1:] if n in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", program, *LIBRARIES], capture_output=True, text=True, check=True)

    assert printed.stdout.strip() == "[]"
