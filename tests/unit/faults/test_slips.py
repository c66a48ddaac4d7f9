"""Slips follow from the functions of the emulator: a wrong result of the same kind, a call left out, no error."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ipu_conformance.emulator.core import plan
from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import slips


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
        ([], []),
        (None, None),
    ],
    ids=repr,
)
def test_a_wrong_value_is_of_the_same_kind(right, wrong):
    """What has no wrong value of its kind stays as it is."""
    assert slips.slipped(right) == wrong
    assert type(slips.slipped(right)) is type(right)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_arrays_keep_their_type_of_number(dtype):
    """Every element is wrong."""
    right = np.arange(3, dtype=dtype)
    wrong = slips.slipped(right)

    assert wrong.dtype == right.dtype
    assert (wrong != right).all()


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
