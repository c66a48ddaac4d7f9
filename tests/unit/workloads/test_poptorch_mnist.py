"""The digits workload's settings, data, reference and command."""

import argparse
import importlib.util
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Tuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_conformance import cli
from ipu_conformance.data.dataset import SPLITS
from ipu_conformance.data.places import DATA_VARIABLE, IMAGE_FILES, LABEL_FILES
from ipu_conformance.oracle.convergence import baseline as baselines
from ipu_conformance.oracle.convergence.recording import find
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workloads import WORKLOADS, WorkloadError, poptorch_mnist
from ipu_conformance.workloads.digits import choose_data
from ipu_conformance.workloads.poptorch_mnist import Settings
from ipu_conformance.workloads.poptorch_mnist.reference import ACCURACY, LOSS, judgements
from ipu_conformance.workloads.poptorch_mnist.settings import BUDGETS

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")

TINY = Settings(epochs=1, train_size=12, test_size=9, batch_size=2, test_batch_size=3, device_iterations=3)

REFUSED = {
    "epochs": ({"epochs": 0}, "--epochs is 0; give 1 or more"),
    "batch": ({"batch_size": -1}, "--batch-size is -1; give 1 or more"),
    "test batch": ({"test_batch_size": 0}, "--test-batch-size is 0; give 1 or more"),
    "iterations": ({"device_iterations": 0}, "--device-iterations is 0; give 1 or more"),
    "rate": ({"learning_rate": 0.0}, "--lr is 0.0; give a positive number"),
    "no rate": ({"learning_rate": float("nan")}, "--lr is nan; give a positive number"),
    "seed": ({"seed": -1}, "--seed is -1; give a number from 0 to 2**63 - 1"),
    "few samples": (
        {"train_size": 399},
        "--train-size is 399, and one call of the model takes 400 samples (50 device iterations of 8); give at least "
        "as many",
    ),
    "odd test size": (
        {"test_size": 100},
        "--test-size is 100, which --test-batch-size 80 does not divide; give a multiple of it, so that every test "
        "sample counts",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_work_are_refused_in_a_sentence(case):
    """The sentence says what was given, what is allowed and what to do."""
    given_values, sentence = REFUSED[case]
    with pytest.raises(WorkloadError) as refused:
        Settings(**given_values)

    assert str(refused.value) == sentence


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_every_test_sample_is_in_a_whole_call(batch, batches, iterations):
    """Calls of the inference model divide the test set, and none is longer than a call of the training model."""
    chosen = Settings(test_batch_size=batch, test_size=batch * batches, device_iterations=iterations, train_size=10**6)

    assert chosen.test_size % (chosen.test_iterations * batch) == 0
    assert 1 <= chosen.test_iterations <= iterations


def mnist_folder(folder, *, complete=True):
    """A folder with MNIST's file names."""
    for split in SPLITS:
        for name in (IMAGE_FILES[split], LABEL_FILES[split])[: 2 if complete else 1]:
            (folder / name).touch()
    return folder


def test_auto_takes_real_digits_only_where_the_user_put_them(tmp_path, monkeypatch):
    """IPU_CONFORMANCE_DATA decides: caches of other programs do not change what a run means."""
    (tmp_path / "data").mkdir()
    mnist_folder(tmp_path / "data")  # where torchvision's programs put them
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert choose_data("auto") == "synthetic-digits"
    monkeypatch.setenv(DATA_VARIABLE, str(empty))
    assert choose_data("auto") == "synthetic-digits"
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    assert choose_data("auto") == "mnist"
    assert choose_data("synthetic-digits") == "synthetic-digits"


def options(*words):
    """The workload's options as the command line reads them."""
    parser = argparse.ArgumentParser()
    poptorch_mnist.configure(parser)
    return parser.parse_args([*words])


def test_the_defaults_of_the_options_are_those_of_the_settings():
    """What the command does without options is what the settings say."""
    args, defaults = options(), Settings()

    assert (args.batch_size, args.test_batch_size, args.device_iterations, args.lr, args.seed) == (
        defaults.batch_size,
        defaults.test_batch_size,
        defaults.device_iterations,
        defaults.learning_rate,
        defaults.seed,
    )
    assert (args.epochs, args.train_size, args.test_size, args.data) == (None, None, None, "auto")


def test_the_figures_of_the_published_run_are_the_defaults():
    """On MNIST: SGD 0.03, batches of 8, 50 device iterations, 10 epochs, all samples, dropout 0.5."""
    chosen = Settings(**{"data": "mnist", **BUDGETS["mnist"]._asdict()})

    assert (chosen.learning_rate, chosen.batch_size, chosen.device_iterations) == (0.03, 8, 50)
    assert (chosen.epochs, chosen.train_size, chosen.test_size, chosen.dropout) == (10, 60_000, 10_000, 0.5)


@needs_torch
def test_the_network_has_the_published_layers():
    """Two blocks of 32 and 64 filters of 3 x 3 with pools of 2, 1600 to 128 and 128 to 10."""
    from ipu_conformance.workloads.poptorch_mnist.model import Network

    shapes = {name: tuple(weight.shape) for name, weight in Network().named_parameters()}

    assert [shape for name, shape in shapes.items() if name.endswith("weight")] == [
        (32, 1, 3, 3),
        (64, 32, 3, 3),
        (128, 1600),
        (10, 128),
    ]
    assert [shape for name, shape in shapes.items() if name.endswith("bias")] == [(32,), (64,), (128,), (10,)]


@needs_torch
def test_images_are_normalised_by_the_training_set():
    """Training images have mean 0 and spread 1 up to rounding; test images are moved by the same amounts."""
    from ipu_conformance.data import load
    from ipu_conformance.workloads.poptorch_mnist.batches import datasets

    training, test = datasets(TINY)
    raw = load(TINY.data, train=TINY.train_size, test=TINY.test_size)
    images = training.tensors[0].double().numpy()
    # A pixel is subtracted and divided in float32: two roundings of values below 256 / spread.
    unit = 2.0**-24 * 2 * 256 / raw.train.images.std()

    assert tuple(training.tensors[0].shape) == (TINY.train_size, 1, 28, 28)
    assert abs(images.mean()) <= unit
    assert abs(images.std() - 1) <= unit
    moved = (raw.test.images[:, :, :, 0].astype(np.float64) - raw.train.images.mean()) / raw.train.images.std()
    assert np.abs(test.tensors[0][:, 0].numpy() - moved).max() <= unit
    assert test.tensors[1].tolist() == raw.test.labels.tolist()


@needs_torch
def test_the_native_twin_uses_every_sample_once_in_an_epoch():
    """An epoch is a new order of the training set; the test set is gone through in its own."""
    import torch
    from torch.utils.data import TensorDataset

    from ipu_conformance.workloads.poptorch_mnist.model import Network
    from ipu_conformance.workloads.poptorch_mnist.sides import Native

    side = Native(Network(), TINY)
    numbered = TensorDataset(torch.arange(TINY.train_size), torch.arange(TINY.train_size))
    batches = side.training_batches(numbered)
    first, second = ([int(x) for images, _ in batches for x in images] for _ in range(2))

    assert sorted(first) == sorted(second) == list(range(TINY.train_size))
    assert first != second
    assert [int(x) for images, _ in side.test_batches(numbered) for x in images] == list(range(TINY.train_size))


@pytest.mark.parametrize("reference", [ACCURACY, LOSS], ids=lambda reference: reference.name)
def test_a_baseline_was_recorded_with_the_settings_of_its_reference(reference):
    """The shipped baseline is of the reference that is in the code, and says how to record it again."""
    baseline = baselines.load(Path(reference.name))
    place = next(word for word in baseline.regenerate.split() if ":" in word)

    assert dict(baseline.budget) == reference.budget
    assert (baseline.workload, baseline.metric) == (reference.name, reference.metric)
    assert find(place) is reference


@dataclass(frozen=True)
class Run:
    """What the references read of a run."""

    accuracies: Tuple[float, ...]
    losses: Tuple[float, ...]


def run_like(reference, *, shift=0.0):
    """A run whose epochs have the means of a baseline, higher by ``shift``."""
    means = [row.mean + shift for row in baselines.load(Path(reference.name)).band().epochs]
    return Run(tuple(means), tuple(mean + wave for mean in means for wave in (-0.25, 0.25)))


@pytest.mark.parametrize("reference", [ACCURACY, LOSS], ids=lambda reference: reference.name)
def test_a_run_is_judged_by_the_baseline_of_its_settings(reference):
    """A run like the mean of the baseline passes, for any seed; one that is too low or too high does not."""
    settings = replace(reference.settings, seed=99)
    shift = max(row.high - row.mean for row in baselines.load(Path(reference.name)).band().epochs) * 1.001
    judged = [[verdict.passed for verdict in judgements(settings, run_like(reference, shift=s))] for s in (0, shift)]

    assert judged == [[True], [False]]
    assert [verdict.passed for verdict in judgements(settings, run_like(reference, shift=-shift))] == [False]
    assert judgements(replace(settings, learning_rate=0.01), run_like(reference)) == []


@needs_torch
@pytest.mark.parametrize(("shift", "code"), [(-0.5, 1), (0.0, 0)], ids=["outside", "inside"])
def test_the_command_fails_where_a_run_leaves_its_baseline(monkeypatch, capsys, shift, code):
    """The exit code says whether the run was inside the band; the last line of the output is the accuracy."""
    from ipu_conformance.workloads.poptorch_mnist import training

    made = run_like(ACCURACY, shift=shift)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setattr(training, "train", lambda *args, **kwargs: made)

    assert cli.main(["train", "poptorch-mnist", "--native"]) == code
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == f"Accuracy on test set: {100 * made.accuracies[-1]:.2f}%"
    assert ("test accuracy is too low at epoch 1" in shown.err) == bool(code)


def test_every_workload_names_a_framework_and_a_module():
    """The table's rows lead somewhere."""
    for name, workload in WORKLOADS.items():
        assert name == workload.name
        assert workload.framework in FRAMEWORKS
        assert importlib.util.find_spec(workload.module) is not None


def command(*words):
    """What the command prints, and its exit code."""
    line = [sys.executable, "-m", "ipu_conformance", "train", "poptorch-mnist", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=200)


@needs_torch
@pytest.mark.parametrize("side", [["--native"], ["--ipu-target", "emulator"]], ids=["native", "emulated"])
def test_the_command_trains(side):
    """Bars with loss and accuracy go to stderr, and the only line of the output is the accuracy on the test set."""
    sizes = ["--epochs", "1", "--train-size", "24", "--test-size", "9", "--batch-size", "2", "--test-batch-size", "3"]
    made = command(*side, *sizes, "--device-iterations", "4", "--data", "synthetic-digits")

    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("Accuracy on test set: ")
    assert made.stdout.endswith("%\n")
    assert "Epoch 1/1: 100%" in made.stderr
    assert "loss " in made.stderr
    assert "accuracy " in made.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--epochs", "0"], "--epochs is 0; give 1 or more"),
        (["--ipu-target", "acme"], "There is no target 'acme'"),
        (["--ipu-target", "hardware"], "poptorch-mnist cannot run on target 'hardware': "),
    ],
    ids=["settings", "unknown target", "unusable target"],
)
def test_bad_input_is_one_sentence(capsys, words, sentence):
    """The exit code is 2 and nothing is trained."""
    assert cli.main(["train", "poptorch-mnist", *(words if words[0] == "--ipu-target" else ["--native", *words])]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"ipu-conformance: error: {sentence}")
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def fresh(text):
    """What a program of its own prints."""
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout


def test_the_command_answers_without_importing_a_framework():
    """Settings are refused before torch is imported."""
    text = """
        import contextlib, os, sys
        from ipu_conformance import cli
        with contextlib.redirect_stderr(open(os.devnull, "w")):
            code = cli.main(["train", "poptorch-mnist", "--native", "--epochs", "0"])
        print(code, "torch" in sys.modules)
    """

    assert fresh(textwrap.dedent(text)) == "2 False\n"


@needs_torch
def test_the_workload_never_imports_the_emulator():
    """The program is written on the vendor's API alone; who runs it decides what that is."""
    text = """
        import sys
        from ipu_conformance.workloads.poptorch_mnist import reference, sides, training
        print([name for name in sys.modules if "emulator" in name or name == "poptorch"])
    """

    assert fresh(textwrap.dedent(text)) == "[]\n"
