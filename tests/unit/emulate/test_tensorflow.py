"""``ipu-conformance emulate`` runs TensorFlow programs of every SDK age, unmodified: those of examples/tensorflow."""

import importlib.util
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("the examples are for a TensorFlow that has everything", allow_module_level=True)

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "tensorflow"
ORDER = ("sdk2_train_infer", "sdk1_keras", "sdk1_train", "sdk1_pipeline")
"""Programs of TensorFlow 1 switch the behaviour of TensorFlow 2 off, and come last."""
DRIVER = """
import runpy, tensorflow
for name in {names!r}:
    print("##", name)
    runpy.run_path(name, run_name="__main__")
    tensorflow.compat.v1.reset_default_graph()
"""


@pytest.fixture(scope="module")
def answers():
    """What each program prints, and the log of all: they share a process, for importing TensorFlow takes seconds."""
    driver = DRIVER.format(names=[str(EXAMPLES / f"{name}.py") for name in ORDER])
    command = [sys.executable, "-m", "ipu_conformance", "emulate", "--ipu-target", "emulator", "-"]
    answer = subprocess.run(command, input=driver, capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode == 0, answer.stderr
    parts = [part.splitlines() for part in answer.stdout.split("## ")[1:]]
    printed = {Path(name).stem: dict(line.split(" ", 1) for line in lines) for name, *lines in parts}
    return {**printed, "log": answer.stderr}


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
