"""Facts about objects hold or fail with one sentence that shows the values."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_conformance import check
from tests.unit.check.conftest import sentence


@pytest.mark.parametrize(
    ("fact", "arguments"),
    [
        (check.equal, {"actual": (1, "a"), "expected": (1, "a"), "what": "x"}),
        (check.differs, {"actual": np.zeros(3), "other": np.ones(3), "what": "x"}),
        (check.contains, {"actual": "a deprecated name", "expected": "deprecated", "what": "x"}),
        (check.lacks, {"actual": {1, 2}, "unexpected": 3, "what": "x"}),
        (check.instance, {"actual": 3, "expected": (int, str), "what": "x"}),
    ],
)
def test_what_is_so_passes(fact, arguments):
    """A fact that holds raises nothing."""
    fact(**arguments)


@pytest.mark.parametrize(
    ("fact", "arguments", "words"),
    [
        (check.equal, {"actual": 3, "expected": 5}, "x is 3 where 5 is expected."),
        (check.differs, {"actual": np.zeros(2), "other": np.zeros(2)}, "x is array([0., 0.]), which it must not be."),
        (check.differs, {"actual": "a", "other": "a"}, "x is 'a', which it must not be."),
        (check.contains, {"actual": [1, 2], "expected": 3}, "x holds no 3: it is [1, 2]."),
        (check.lacks, {"actual": "ab", "unexpected": "a"}, "x holds 'a', which it must not: it is 'ab'."),
        (check.instance, {"actual": 3, "expected": (str, list)}, "x is a int where str or list is expected."),
    ],
)
def test_what_is_not_so_is_one_sentence(fact, arguments, words):
    """The sentence names the thing and shows what it is."""
    assert sentence(fact, what="x", **arguments) == words


def test_a_condition_brings_its_own_sentence():
    """Where no other fact fits, the caller says what is wrong."""
    check.holds(1 < 2, "unreachable")

    assert sentence(check.holds, condition=1 > 2, sentence="the loss rises.") == "the loss rises."


def test_arrays_are_not_compared_as_objects():
    """An array has its own checks, which look at shape, type and every value."""
    with pytest.raises(check.CheckMisuseError, match=r"^x is an array: compare it with identical or close$"):
        check.equal(actual=np.zeros(2), expected=np.zeros(2), what="x")


def test_a_long_value_is_cut():
    """A sentence stays readable whatever the value."""
    text = sentence(check.equal, actual="a" * 5000, expected="b", what="x")

    assert len(text) < 500
    assert text.endswith("… (5002 characters) where 'b' is expected.")
