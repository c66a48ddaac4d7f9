"""The digits workload learns its data set on the device as well as the native runs do, and its saved model shows it."""

from __future__ import annotations

import operator
from dataclasses import replace
from pathlib import Path
from typing import Any, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.workloads.paddle_mnist import Settings, model_folder
from ipu_conformance.workloads.paddle_mnist.reference import ACCURACY, LOSS
from ipu_conformance.workloads.reference import Reference, verdict

LEARNS = Settings(epochs=3, train_size=1280, test_size=200)


@pytest.fixture(autouse=True)
def own_state(paddle: Any) -> None:
    """The workload finds and leaves Paddle in dynamic mode."""


def train(settings: Settings, **options: Any) -> Any:
    """A run of the workload on the device."""
    from ipu_conformance.workloads.paddle_mnist.training import train as run

    return run(settings, native=False, **options)


@pytest.mark.parametrize(
    ("reference", "seeds"),
    [
        pytest.param(LOSS, (1000, 1001, 1002), id="loss"),
        pytest.param(ACCURACY, (1000,), id="accuracy"),
    ],
)
def test_the_workload_converges_like_its_baseline(reference: Reference, seeds: Tuple[int, ...]) -> None:
    """The values of runs with new seeds lie in the band of the native runs at each epoch, neither below nor above."""
    judged = verdict(reference, [train(replace(reference.settings, seed=seed)) for seed in seeds])

    check.holds(judged.passed, judged.sentence)


def test_the_saved_model_recognises_what_the_run_did(tmp_path: Path) -> None:
    """For one picture at a time, of every digit, the saved model says on the device what the run's weights say."""
    from ipu_conformance.data import load
    from ipu_conformance.workloads.paddle_mnist.digits import datasets
    from ipu_conformance.workloads.paddle_mnist.model import static_mode
    from ipu_conformance.workloads.paddle_mnist.saved_model import recognise
    from ipu_conformance.workloads.paddle_mnist.trainers import Host, NativeTrainer

    result = train(LEARNS, model=model_folder(tmp_path))
    tests = datasets(LEARNS)[1]
    labels = load(LEARNS.data, train=0, test=LEARNS.test_size).test.labels
    chosen = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    with static_mode():
        host = Host(LEARNS)
        expected = NativeTrainer(LEARNS, host).classify(tests, result.weights)
    digits = [recognise(tests.images[number : number + 1], tmp_path, native=False).digit for number in chosen]
    right, most_frequent = sum(map(operator.eq, digits, range(10))), np.bincount(labels).max() / len(labels)

    check.equal(actual=digits, expected=expected[chosen].argmax(axis=1).tolist(), what="the list of recognised digits")
    # A model that was not trained, or trained on one digit, gets one of ten right.
    check.holds(right > 5, f"the saved model recognises {right} of 10 digits, where more than 5 are expected.")
    guess = f"the accuracy is {result.accuracy:.3f}, not above {most_frequent:.3f}, that of the most frequent digit."
    check.holds(result.accuracy > most_frequent, guess)
