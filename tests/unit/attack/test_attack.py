"""A short attack on every reader: good files, the files that were found, and some mutations (make attack has more)."""

from __future__ import annotations

import warnings

import pytest

from tests.unit.attack.corpus import CONSTRUCTED
from tests.unit.attack.readers import READERS
from tests.unit.attack.run import Attack

INPUTS = 25
LARGE = ("64 MB of blanks", "black images", "packed JPEG files")
"""Files that take longer to make than all the others together."""


@pytest.fixture(scope="module")
def attacks(tmp_path_factory):
    """The attacks that were begun, by reader: some have to import a framework."""
    begun = {}

    def attack(name):
        if name not in begun:
            begun[name] = Attack(name, tmp_path_factory.mktemp(name))
        return begun[name]

    return attack


@pytest.fixture(autouse=True)
def quiet():
    """Pillow and NumPy warn about odd files; that is no failure of a reader."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", READERS)
def test_mutated_files_are_read_or_refused(attacks, name):
    """Mutations of good files raise nothing but the declared error, in one line, and stall nobody."""
    attack = attacks(name)
    first = len(CONSTRUCTED)

    wrong = {number: attack.try_input(attack.input(number)) for number in range(first, first + INPUTS)}
    assert {number: what for number, what in wrong.items() if what is not None} == {}


@pytest.mark.parametrize("what", [what for what in CONSTRUCTED if what not in LARGE])
def test_files_that_stalled_a_reader_do_so_no_more(attacks, what):
    """Budgets on work, not only on size: each of them is read or refused at once."""
    name, make = CONSTRUCTED[what]

    assert attacks(name).try_input(make()) is None
