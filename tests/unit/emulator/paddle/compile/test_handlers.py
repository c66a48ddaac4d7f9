"""What the emulator translates and refuses is compared with the ops that an IPU build has handlers for."""

import json
from pathlib import Path

import pytest

from ipu_conformance.emulator.paddle.compile import handlers as module
from ipu_conformance.emulator.paddle.compile.handlers import handlers
from ipu_conformance.ir.readers.paddle import program  # noqa: F401  fills the table of rows
from ipu_conformance.ir.readers.paddle.ops import ROWS
from ipu_conformance.ops import TABLE

FACTS = json.loads((Path(module.__file__).parent / "handlers.json").read_text())
REASONS = {name: row.missing("paddle") for name, row in TABLE.items()}


def test_every_op_with_a_handler_has_a_row():
    """The emulator refuses no op that an IPU build takes, but for those that are no ops of a Program."""
    assert handlers() - set(ROWS) == set(FACTS["without_a_row"])


def test_what_is_taken_besides_is_listed():
    """An op that the emulator translates and an IPU build has no handler for is one that somebody decided on."""
    assert sorted(set(ROWS) - handlers()) == FACTS["accepted_besides"]


@pytest.mark.parametrize("op", [op for op, reason in REASONS.items() if "no handler" in (reason or "")])
def test_an_op_that_is_said_to_have_no_handler_has_none(op):
    """The suite leaves out an op for want of a handler only where the vendor's sources have none."""
    assert op not in handlers()
