"""Slips follow from the functions of the emulator: a wrong result of the same kind, a call left out, no error."""

from __future__ import annotations

import contextlib
import enum
import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core import plan
from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import slips


class _Order(enum.Enum):
    FIRST = 1
    LAST = 2


class _Pair(NamedTuple):
    number: int
    thing: object


@dataclass(frozen=True)
class _Size:
    width: int
    height: int


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (True, False),
        (3, 4),
        (2.0, 2.625),
        ("mean", "mean-"),
        ([1, 2, 4], [4, 2, 1]),
        ((1, 2, 1), (1, 2, 2)),
        ((5,), (6,)),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}),
        ({4, 2, 7}, {4, 7}),
        (_Order.LAST, _Order.FIRST),
        (_Pair(3, None), _Pair(4, None)),
        (_Size(3, 5), _Size(3, 6)),
        ([], []),
        (None, None),
        ((None,), (None,)),
    ],
    ids=repr,
)
def test_a_wrong_value_is_of_the_same_kind(right, wrong):
    """What has no wrong value of its kind stays as it is."""
    assert slips.slipped(right) == wrong
    assert type(slips.slipped(right)) is type(right)
    assert slips.can_slip(right) == (right != wrong)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_arrays_keep_their_type_of_number(dtype):
    """Every element is wrong."""
    right = np.arange(3, dtype=dtype)
    wrong = slips.slipped(right)

    assert wrong.dtype == right.dtype
    assert (wrong != right).all()
    assert slips.can_slip(right)


def test_the_first_of_what_is_yielded_is_missing():
    """The others come, in order."""
    values = (number * number for number in range(2, 5))

    assert slips.can_slip(values)
    assert list(slips.slipped(values)) == [9, 16]


def test_a_module_is_another_one():
    """It has the same names, as if it had been imported twice."""
    wrong = slips.slipped(plan)

    assert wrong is not plan
    assert wrong.plan is plan.plan


def test_a_scope_ends_at_once():
    """It gives what it gives, and what is inside the block is outside of it."""
    inside = []

    @contextlib.contextmanager
    def scope():
        inside.append(1)
        yield inside
        inside.clear()

    with slips.slipped(scope()) as given:
        assert given is inside
        assert not inside


def _nothing(box):
    box.append(1)

    def inner():
        return box

    inner()


def _refusing():
    raise ValueError("no")
    return 1


def test_a_call_that_returns_nothing_is_left_out():
    """What a function inside of it returns does not count."""
    box = []

    assert slips.is_procedure(_nothing)
    assert slips.wrong(_nothing, box) is None
    assert box == []


def test_an_error_does_not_come():
    """The device accepts what it refuses."""
    assert slips.wrong(_refusing) is None


def test_a_slip_is_injected_by_the_place_of_its_function():
    """It needs no row of the catalogue; a place that is none is refused."""
    with catalogue.inject("slip:core.plan:plan") as (fault,):
        assert fault.wrong is slips.wrong
    with pytest.raises(catalogue.FaultError, match="no function"), catalogue.inject("slip:core.streams:nothing"):
        pass


def test_a_function_is_not_noted_that_cannot_be_wrong():
    """Its result has no wrong value of its kind, so a slip of it would change nothing."""
    noted = set()
    with slips.called(noted.add):
        faults.at("streams.split", object())
        plan.plan((0, 1), "grouped", 3)

    assert "faults:at" not in noted


def test_the_functions_that_are_called_are_noted_in_every_thread():
    """Replicas run in threads of their own."""

    def call():
        plan.plan((0, 1), "grouped", 3)

    for run in (call, lambda: _in_thread(call)):
        noted = set()
        with slips.called(noted.add):
            run()

        assert "core.plan:plan" in noted


def _in_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
