"""A failed case leaves what pytest said of it, and a program; that of a failed call of an op holds its numbers."""

import ast

import numpy as np
import pytest

from ipu_conformance import notes
from ipu_conformance.frameworks import OpCall, OpResult
from ipu_conformance.ops import TABLE
from ipu_conformance.ops.demand import literal, numbers
from ipu_conformance.ops.sampling import Call
from ipu_conformance.oracle.sample import Sample
from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import scripts
from ipu_conformance.report.alone import calls
from ipu_conformance.trials import judge
from ipu_conformance.trials.bench import Trial
from tests.unit.report.journals import CASES, entries, failed

PROGRAM = "print('the case is as specified')\n"


def test_a_program_begins_with_what_it_shows():
    """The case and its sentence, whatever marks they hold."""
    result = failed(f'{CASES[0][:-1]}"""\\x]', program=PROGRAM, sentence='it says """no""" \\ at all.')
    text = scripts.program(result)

    assert text.endswith(PROGRAM)
    assert "it says '''no''' \\ at all." in (ast.get_docstring(ast.parse(text)) or "")


def test_a_failure_without_a_program_has_its_command():
    """Such as one of somebody else's case."""
    record = report_folder.recorded(entries([failed(CASES[0], program=PROGRAM), failed(CASES[1])]))

    assert sorted(name.rpartition(".")[2] for name in scripts.files(record)) == ["py", "txt", "txt"]


def op_program(result):
    """The program of a difference of two numbers in each of three micro-batches, as the suite's judge tells of it."""
    row, samples = TABLE["sub"], [Sample((np.array([3.0, k]), np.array([k, 5.0])), {}) for k in (2.0, 7.0, 11.0)]
    call = Call("drawn", tuple(samples))
    trial = Trial(call, (), OpCall(row.call("paddle"), (), {}), result)
    told = {}
    with notes.heard_by(lambda kind, facts: told.update({kind: facts})), pytest.raises((AssertionError, OSError)):
        judge.forward(row, trial, "float32", "paddle")
    return calls.program(told["call"], "paddle", "emulator")


def test_a_failed_call_of_an_op_is_a_program_with_the_oracle_s_numbers():
    """The call is there, and what was expected of the output that differed."""
    right = [(np.array([3 - k, k - 5], np.float32),) for k in (2, 7, 11)]
    text = op_program(OpResult((right[0], (np.array([-4.0, 2.5], np.float32),), right[2]), {}))

    compile(text, "failure.py", "exec")
    assert "inputs=((array([3.0, 2.0], 'float64'), array([2.0, 5.0], 'float64'),), (array([3.0, 7.0]" in text
    assert "actual = result.outputs[1][0]" in text
    assert "expected=array([-4.0, 2.0], 'float64')" in text


def test_a_call_that_the_device_refused_is_a_program_without_numbers():
    """It makes the call."""
    assert "check.close" not in op_program(OSError("no such op"))


def test_a_value_is_written_so_that_python_reads_it():
    """Arrays of any type and shape, infinities and NaN, and tuples of one."""
    value = {"a": (np.array([[1.5, -np.inf]]), (2,)), "b": [np.zeros((0, 3), "int32"), np.array([True])], "c": np.nan}
    back = eval(literal(value), {"array": np.array, "inf": np.inf, "nan": np.nan})

    assert literal(back) == literal(value)
    assert back["b"][0].shape == (0, 3)
    assert numbers(value) == 3
