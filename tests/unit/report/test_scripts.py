"""A failed case leaves a program that shows it without pytest, on a wrong device and not on a right one."""

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
from ipu_conformance.run import Rule, RunConfig, learning_rate, optimizer
from ipu_conformance.trials import judge
from ipu_conformance.trials.bench import Trial
from tests.unit.commands import run
from tests.unit.report import journals
from tests.unit.report.journals import CASES, entries, failed

CONFIG = RunConfig(
    device_iterations=2,
    gradient_accumulation=3,
    replicas=5,
    optimizer=optimizer("lamb"),
    learning_rate=learning_rate(base=0.125),
    output_layout="paddle",
)
RUN = {"way": "train", "net": "mlp", "config": repr(CONFIG), "options": "{}"}


def test_a_failed_run_is_a_program_without_pytest():
    """It repeats the run of the case, whose configuration it holds, and compares it with the oracle."""
    text = scripts.program(
        failed(f'{CASES[0][:-1]}"""\\x]', run=RUN, sentence='it says """no""" \\ at all.'), journals.run()["frameworks"]
    )
    line = next(line for line in text.splitlines() if line.startswith("config = "))
    names = {"RunConfig": RunConfig, "Rule": Rule, "inf": float("inf")}

    compile(text, "failure.py", "exec")
    assert "pytest" not in text.partition('"""\n\n')[2]
    assert eval(line[len("config = ") :], names) == CONFIG
    assert "discover()['acme'], FRAMEWORKS['paddle']" in text


def test_only_a_failure_that_trained_or_inferred_has_a_program():
    """Others have their command."""
    assert scripts.has_program(failed(CASES[0], run=RUN))
    assert not scripts.has_program(failed(CASES[0]))
    assert not scripts.has_program(failed(CASES[0], run={**RUN, "way": "native"}))
    assert not scripts.has_program(failed("test_acme.py::test_of_no_framework", run=RUN))
    record = report_folder.recorded(entries([failed(CASES[0], run=RUN), failed(CASES[1])]))
    assert sorted(name.rpartition(".")[2] for name in scripts.files(record)) == ["py", "txt", "txt"]


CASE = "training/test_updates_ipu.py::test_weights_are_the_oracle_s[paddle-mlp-D2-G4-R3-momentum]"


def paddle_program(target):
    """The program of a training with Paddle."""
    config = RunConfig(
        device_iterations=2,
        gradient_accumulation=3,
        learning_rate=learning_rate(base=0.125),
        output_layout="paddle",
        unbiased_statistics=False,
    )
    result = failed(CASE, run={**RUN, "config": repr(config)})
    return scripts.program(result, {"paddle": journals.framework("paddle", target)})


OP_CASE = "ops/test_ops_ipu.py::test_forward[paddle-elementwise-sub-float32-drawn]"


def op_program(result):
    """The program of a difference of two numbers in each of three micro-batches, as the suite's judge tells of it."""
    row, samples = TABLE["sub"], [Sample((np.array([3.0, k]), np.array([k, 5.0])), {}) for k in (2.0, 7.0, 11.0)]
    call = Call("drawn", tuple(samples))
    trial = Trial(call, (), OpCall(row.call("paddle"), (), {}), result)
    told = {}
    with notes.heard_by(lambda kind, facts: told.update({kind: facts})), pytest.raises((AssertionError, OSError)):
        judge.forward(row, trial, "float32", "paddle")
    return scripts.program(failed(OP_CASE, run=told["run"]), {"paddle": journals.framework("paddle", "emulator")})


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


DEVICES = """
import sys
from ipu_conformance import check
from ipu_conformance.emulator.faults import catalogue

catalogue.load("paddle")
training, call = [open(path).read() for path in sys.argv[1:]]
exec(call, {})
with catalogue.inject("update-halved", "paddle-op-difference-is-sum"):
    for program in (training, call):
        try:
            exec(program, {})
        except check.CheckFailure as failure:
            print(failure)
"""


def test_a_wrong_device_is_shown_by_the_program_alone(tmp_path):
    """It fails by the check's sentence; tests/unit/suite/test_example_target.py has a right device for a training."""
    (tmp_path / "training").write_text(paddle_program("emulator"))
    right = [(np.array([3 - k, k - 5], np.float32),) for k in (2, 7, 11)]
    (tmp_path / "call").write_text(op_program(OpResult((right[0], right[1], (np.array([0.0, 6.0], np.float32),)), {})))
    answer = run("-c", DEVICES, "training", "call", module=None, cwd=tmp_path)
    said = answer.stdout.splitlines()

    assert said[0] == "the call is as specified", answer.stderr
    assert said[1].startswith("the loss of step 0, device iteration 1")
    assert said[2].startswith(
        "output 0 of sub([2] and [2]) in micro-batch 2 differs at [0]: actual 14.0, expected -8.0"
    )
