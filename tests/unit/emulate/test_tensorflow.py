"""``ipu-conformance emulate`` runs TensorFlow programs of every SDK age, unmodified, such as examples/tensorflow."""

import importlib.util
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from tests.unit.emulator.tensorflow.test_activation import GRAPH_FIRST, PROGRAM, SAID

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("the emulated IPU part of TensorFlow needs tensorflow", allow_module_level=True)

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "tensorflow"
ORDER = ("sdk2_train_infer", "sdk1_keras", "sdk1_train", "sdk1_pipeline")
"""Programs of TensorFlow 1 switch the behaviour of TensorFlow 2 off, and come last."""
DRIVER = """
import atexit, os, runpy, sys, traceback
from tensorflow.python import ipu
import tensorflow

def forked(name):
    print("##", name, flush=True)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert status == 0, (name, status)
        return
    code = 0
    try:
        runpy.run_path(name, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)

# Until a program starts the runtime, a fork is as good as a process.
for name in {forks!r}:
    forked(name)
for name in {names!r}:
    print("##", name)
    runpy.run_path(name, run_name="__main__")
    tensorflow.compat.v1.reset_default_graph()
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The lines of each program, and the log of all: they share a process, for importing TensorFlow takes seconds."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in (("program.py", PROGRAM), ("graph_first.py", GRAPH_FIRST)):
        (folder / name).write_text(text)
    whole = importlib.util.find_spec("tensorflow_estimator") is not None
    driver = DRIVER.format(
        forks=[str(folder / name) for name in ("program.py", "graph_first.py")],
        names=[str(EXAMPLES / f"{name}.py") for name in ORDER if whole],
    )
    command = [sys.executable, "-m", "ipu_conformance", "emulate", "--ipu-target", "emulator", "-"]
    answer = subprocess.run(command, input=driver, capture_output=True, text=True, check=False, timeout=240)
    assert answer.returncode == 0, answer.stderr
    parts = [part.splitlines() for part in answer.stdout.split("## ")[1:]]
    return {**{Path(name).stem: lines for name, *lines in parts}, "log": answer.stderr}


@pytest.fixture(scope="module")
def answers(ended):
    """What each example printed, by the first word of a line, and the log."""
    if "sdk1_train" not in ended:
        pytest.skip("the examples are for a TensorFlow that has everything")
    return {**{name: dict(line.split(" ", 1) for line in ended[name]) for name in ORDER}, "log": ended["log"]}


@pytest.mark.parametrize(("name", "said"), [("program", SAID), ("graph_first", ["PRODUCT 6.0"])])
def test_a_program_is_emulated(ended, name, said):
    """A user's program runs unmodified by the command, also where the runtime starts inside a graph."""
    assert ended[name] == said


def numbers(text):
    return [float(word) for word in text.split()]


def descent(inputs, rate=Fraction(1, 16)):
    """The weight that begins at 1 and learns to multiply by 3, and the loss of every step, with nothing rounded."""
    weight, losses = Fraction(1), []
    for x in inputs:
        error = weight * x - 3 * x
        losses.append(float(error**2))
        weight -= rate * 2 * x * error
    return float(weight), losses


def test_a_program_of_sdk_1_trains(answers):
    """A session runs a loop of three steps, and prints their losses."""
    weight, losses = descent([1, 2, 1])

    assert numbers(answers["sdk1_train"]["weight"]) == [weight]
    assert numbers(answers["sdk1_train"]["losses"]) == losses


def test_a_pipeline_of_sdk_1_trains(answers):
    """Two runs of a pipeline of depth 4 update twice."""
    weights, losses, total = [2.0, 1.0], [], 1 + 2 + 3 + 4
    for _ in range(2):
        first, second = weights
        losses += [x * first * second for x in (1, 2, 3, 4)]
        weights = [first - total * second / 64, second - total * first / 64]

    assert numbers(answers["sdk1_pipeline"]["weights"]) == weights
    assert numbers(answers["sdk1_pipeline"]["losses"]) == losses


def test_a_keras_pipeline_of_sdk_1_trains(answers):
    """A model of ``ipu.keras`` with two stages updates once an epoch; its losses are means over the epoch."""
    weights, losses, total = [2.0, 1.0], [], 1 + 2 + 3 + 4
    for _ in range(2):
        first, second = weights
        losses.append(total / 4 * first * second)
        weights = [first - total * second / 64, second - total * first / 64]

    assert numbers(answers["sdk1_keras"]["weights"]) == weights
    assert numbers(answers["sdk1_keras"]["losses"]) == losses
    assert numbers(answers["sdk1_keras"]["evaluation"]) == [total / 4 * weights[0] * weights[1]]


def test_a_program_of_sdk_2_infers_from_a_saved_model(answers):
    """A Keras model is trained, saved, loaded and asked."""
    weight, _ = descent([1, 2, 1, 2])

    assert numbers(answers["sdk2_train_infer"]["weight"]) == [weight]
    assert numbers(answers["sdk2_train_infer"]["predictions"]) == [weight, 4 * weight]


def test_the_log_names_an_earlier_sdk_once(answers):
    """Programs say a dozen old things in one process: the log names the first, on every handler that it has."""
    lines = {line for line in answers["log"].splitlines() if "earlier SDK" in line}

    assert len(lines) == 1
    assert "create_ipu_config" in lines.pop()
