"""While cases run, TensorFlow notes the stack of an operation once for all."""

import itertools
import sys
from types import ModuleType

import pytest

from ipu_conformance.workers import stacks


@pytest.fixture
def noting(monkeypatch):
    """A module in place of TensorFlow's, whose notes are numbers."""
    module = ModuleType(stacks.MODULE)
    numbers = itertools.count()
    vars(module).update(extract_stack=lambda stacklevel=1: next(numbers))
    monkeypatch.setitem(sys.modules, stacks.MODULE, module)
    return module


def test_operations_share_a_note(noting):
    """Every operation gets the note of the first; to share again changes nothing."""
    assert [noting.extract_stack(stacklevel=3) for _ in range(3)] == [0, 1, 2]
    stacks.share()
    shared = noting.extract_stack
    stacks.share()

    assert noting.extract_stack is shared
    assert [noting.extract_stack(stacklevel=3) for _ in range(3)] == [3, 3, 3]


def test_nothing_is_imported(monkeypatch):
    """Without TensorFlow there is nothing to share."""
    monkeypatch.delitem(sys.modules, stacks.MODULE, raising=False)
    stacks.share()

    assert stacks.MODULE not in sys.modules
