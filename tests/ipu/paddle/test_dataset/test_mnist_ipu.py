"""The digits workload learns its data set on the device as well as the native runs do, and its saved model shows it."""

from __future__ import annotations

import operator
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.workloads.paddle_mnist import Settings, model_folder
from ipu_conformance.workloads.paddle_mnist.reference import ACCURACY, LOSS
from ipu_conformance.workloads.reference import Reference, verdict

PICTURES = replace(LOSS.settings, test_size=200)
"""The data set of the shorter runs with tests of every digit."""


@pytest.fixture(autouse=True)
def own_state(paddle: Any) -> None:
    """The workload finds and leaves Paddle in dynamic mode."""


class Runs:
    """The runs of the session by their settings, each with the folder of the model that it has saved."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: Dict[Settings, Tuple[Any, Path]] = {}

    def __call__(self, settings: Settings) -> Tuple[Any, Path]:
        if settings not in self._known:
            from ipu_conformance.workloads.paddle_mnist.training import train

            folder = self._folder / str(len(self._known))
            self._known[settings] = train(settings, native=False, model=model_folder(folder)), folder
        return self._known[settings]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs that cases share; they end with the session, so that a case under a fault runs again."""
    return Runs(tmp_path_factory.mktemp("paddle_mnist"))


@pytest.mark.parametrize(
    ("reference", "seeds"),
    [
        pytest.param(LOSS, (1000, 1001, 1002), id="loss"),
        pytest.param(ACCURACY, (1000,), id="accuracy"),
    ],
)
def test_the_workload_converges_like_its_baseline(reference: Reference, seeds: Tuple[int, ...], run: Runs) -> None:
    """The values of runs with new seeds lie in the band of the native runs at each epoch, neither below nor above."""
    judged = verdict(reference, [run(replace(reference.settings, seed=seed))[0] for seed in seeds])

    check.holds(judged.passed, judged.sentence)


def test_the_saved_model_recognises_what_the_run_did(run: Runs) -> None:
    """For one picture at a time, of every digit, the saved model says on the device what the run's weights say."""
    from ipu_conformance.data import load
    from ipu_conformance.workloads.paddle_mnist.digits import datasets
    from ipu_conformance.workloads.paddle_mnist.model import static_mode
    from ipu_conformance.workloads.paddle_mnist.saved_model import recognise
    from ipu_conformance.workloads.paddle_mnist.trainers import Host, NativeTrainer

    settings = replace(LOSS.settings, seed=1000)
    result, folder = run(settings)
    tests = datasets(PICTURES)[1]
    labels = tests.labels[:, 0]
    chosen = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    with static_mode():
        host = Host(settings)
        expected = NativeTrainer(settings, host).classify(tests, result.weights)
    digits = [recognise(tests.images[number : number + 1], folder, native=False).digit for number in chosen]
    right = sum(map(operator.eq, digits, range(10)))
    tested = load(settings.data, train=0, test=settings.test_size).test.labels
    most_frequent = np.bincount(tested).max() / len(tested)

    check.equal(actual=digits, expected=expected[chosen].argmax(axis=1).tolist(), what="the list of recognised digits")
    # A model that was not trained, or trained on one digit, gets one of ten right.
    check.holds(right > 5, f"the saved model recognises {right} of 10 digits, where more than 5 are expected.")
    guess = f"the accuracy is {result.accuracy:.3f}, not above {most_frequent:.3f}, that of the most frequent digit."
    check.holds(result.accuracy > most_frequent, guess)
