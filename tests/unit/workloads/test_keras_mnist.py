"""The Keras digits workload's settings, data, references and command."""

import argparse
import importlib.util
import json
import os
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
from ipu_conformance.data import CLASS_NAMES, load
from ipu_conformance.data.places import DATA_VARIABLE
from ipu_conformance.oracle.convergence import baseline as baselines
from ipu_conformance.oracle.convergence.recording import find
from ipu_conformance.workloads import WorkloadError, keras_mnist, keras_options, sample_plot
from ipu_conformance.workloads.folders import make_folder
from ipu_conformance.workloads.keras_mnist import Settings
from ipu_conformance.workloads.keras_mnist.reference import SHORT, WHOLE, judgements
from ipu_conformance.workloads.shares import MOST_TEST_SAMPLES, check_shares, test_batch

needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs tensorflow")
test_batch.__test__ = False

REFUSED = {
    "epochs": ({"epochs": 0}, "--epochs is 0; give 1 or more"),
    "steps": ({"steps_per_epoch": 0}, "--steps-per-epoch is 0; give 1 or more"),
    "execution": ({"steps_per_execution": -1}, "--steps-per-execution is -1; give 1 or more"),
    "samples": ({"train_size": 0}, "--train-size is 0; give 1 or more"),
    "tests": ({"test_size": 0}, "--test-size is 0; give 1 or more"),
    "batch": ({"batch_size": 0}, "--batch-size is 0; give 1 or more"),
    "replicas": ({"replicas": 0}, "--replicas is 0; give 1 or more"),
    "rate": ({"learning_rate": 0.0}, "--lr is 0.0; give a positive number"),
    "no rate": ({"learning_rate": float("nan")}, "--lr is nan; give a positive number"),
    "seed": ({"seed": -1}, "--seed is -1; give a number from 0 to 2**31 - 1"),
    "large seed": ({"seed": 2**31}, "--seed is 2147483648; give a number from 0 to 2**31 - 1"),
    "odd execution": (
        {"steps_per_execution": 300},
        "--steps-per-execution is 300, which does not divide the 2000 of --steps-per-epoch; give a divisor of them",
    ),
    "odd batch": (
        {"replicas": 3},
        "--batch-size is 32, which 3 replicas (--replicas) cannot share equally; give a multiple of 3",
    ),
    "odd test size": (
        {"replicas": 4, "test_size": 30},
        "--test-size is 30, which 4 replicas (--replicas) cannot share equally; give a multiple of 4",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_work_are_refused_in_a_sentence(case):
    """The sentence says what was given, what is allowed and what to do."""
    given_values, sentence = REFUSED[case]
    with pytest.raises(WorkloadError) as refused:
        Settings(**given_values)

    assert str(refused.value) == sentence


@given(st.integers(1, 16), st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_replicas_share_the_test_set_equally(replicas, share):
    """Every replica has whole batches, nothing is left over, and no batch could be larger."""
    size = replicas * share
    batch = test_batch(replicas, size)

    check_shares("--replicas", replicas, replicas, size)
    assert 1 <= batch <= MOST_TEST_SAMPLES
    assert size % (replicas * batch) == 0
    assert not any(share % larger == 0 for larger in range(batch + 1, min(share, MOST_TEST_SAMPLES) + 1))


def options(*words):
    """The settings that a command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--native", action="store_true")
    keras_mnist.configure(parser)
    return keras_mnist.settings_of(parser.parse_args(words))


def test_the_published_figures_are_the_defaults(monkeypatch):
    """Batches of 32, 100 steps an execution, four epochs of 2,000 steps, SGD 0.01; MNIST in whole."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    chosen = options("--data", "mnist")

    assert (chosen.batch_size, chosen.steps_per_execution) == (32, 100)
    assert (chosen.epochs, chosen.steps_per_epoch, chosen.learning_rate) == (4, 2000, 0.01)
    assert (chosen.train_size, chosen.test_size, chosen.replicas, chosen.seed) == (60_000, 10_000, 1, 0)
    assert options() == WHOLE.settings


def test_options_become_settings(monkeypatch):
    """Every option has a place in the settings."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    words = "--epochs 3 --steps-per-epoch 20 --steps-per-execution 5 --train-size 7 --test-size 8 --batch-size 6"
    chosen = options(*words.split(), "--replicas", "2", "--seed", "9", "--lr", "0.5")

    assert chosen == Settings("synthetic-digits", 3, 20, 5, 7, 8, 6, 0.5, 9, 2)


@dataclass(frozen=True)
class Run:
    """What references and the command read of a run."""

    losses: Tuple[float, ...]
    accuracy: float = 0.5


def run_like(reference, *, shift=0.0):
    """A run whose epochs have the means of a baseline, higher by ``shift``."""
    return Run(tuple(row.mean + shift for row in baselines.load(Path(reference.name)).band().epochs))


@pytest.mark.parametrize("reference", [WHOLE, SHORT], ids=lambda reference: reference.name)
def test_a_baseline_was_recorded_with_the_settings_of_its_reference(reference):
    """The shipped baseline is of the reference that is in the code, and says how to record it again."""
    baseline = baselines.load(Path(reference.name))
    place = next(word for word in baseline.regenerate.split() if ":" in word)

    assert dict(baseline.budget) == reference.budget
    assert (baseline.workload, baseline.metric) == (reference.name, reference.metric)
    assert find(place) is reference


@pytest.mark.parametrize("reference", [WHOLE, SHORT], ids=lambda reference: reference.name)
def test_a_run_is_judged_by_the_baseline_of_its_settings(reference):
    """A run like the mean passes, for any seed and any replicas; one that is too low or too high does not."""
    chosen = replace(reference.settings, seed=99, replicas=2)
    shift = max(row.high - row.mean for row in baselines.load(Path(reference.name)).band().epochs) * 1.001

    for moved, passed in ((0.0, True), (shift, False), (-shift, False)):
        verdicts = judgements(chosen, run_like(reference, shift=moved))
        assert [verdict.passed for verdict in verdicts] == [passed]
    assert judgements(replace(chosen, learning_rate=0.1), run_like(reference)) == []


@needs_tensorflow
@pytest.mark.parametrize(("shift", "code"), [(0.5, 1), (0.0, 0)], ids=["outside", "inside"])
def test_the_command_fails_where_a_run_leaves_its_baseline(monkeypatch, capsys, tmp_path, shift, code):
    """The exit code says whether the run was inside the band; the last line of the output is the accuracy."""
    from ipu_conformance.workloads.keras_mnist import training

    made = run_like(WHOLE, shift=shift)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setattr(training, "train", lambda *args, **kwargs: made)

    assert cli.main(["train", "keras-mnist", "--native", "--folder", str(tmp_path)]) == code
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "Accuracy on test set: 50.00%"
    assert ("mean training loss is too high at epoch 1" in shown.err) == bool(code)


@needs_tensorflow
def test_the_network_has_the_published_shapes():
    """784 pixels, 128 hidden units, 10 probabilities; the seed decides the weights."""
    from ipu_conformance.workloads.keras_mnist.model import build

    first, again, other = build(3), build(3), build(4)

    assert [weight.shape for weight in first.get_weights()] == [(784, 128), (128,), (128, 10), (10,)]
    assert [layer.activation.__name__ for layer in first.layers[1:]] == ["relu", "softmax"]
    assert all(map(np.array_equal, first.get_weights(), again.get_weights()))
    assert not np.array_equal(first.get_weights()[0], other.get_weights()[0])


@needs_tensorflow
def test_training_samples_come_in_a_new_order_in_every_pass():
    """Batches go on over the end of a pass; images keep their labels; the seed alone decides the order."""
    import tensorflow as tf

    from ipu_conformance.workloads.keras_data import training_set

    split, passes, batch = load("synthetic-digits", train=15, test=0).train, 2, 6

    def drawn(seed):
        tf.random.set_seed(seed + 5)
        taken = training_set(split, batch, seed).take(passes * 15 // batch).as_numpy_iterator()
        images, labels = (np.concatenate(part) for part in zip(*taken))
        known = {split.images[number].tobytes(): number for number in range(15)}
        numbers = [known[np.rint(image * 255).astype(np.uint8).tobytes()] for image in images]
        assert labels.tolist() == split.labels[numbers].tolist()
        assert (images.dtype, labels.dtype, float(images.max())) == (np.float32, np.int32, 1.0)
        return numbers

    first = drawn(1)

    assert sorted(first[:15]) == sorted(first[15:]) == list(range(15))
    assert first[:15] != first[15:]
    assert drawn(2) != first
    tf.random.set_seed(77)
    assert drawn(1) == first


@needs_tensorflow
def test_test_samples_come_in_their_order():
    """Every sample once."""
    from ipu_conformance.workloads.keras_data import test_set

    split = load("synthetic-digits", train=0, test=12).test
    labels = np.concatenate([labels for _, labels in test_set(split, 4).as_numpy_iterator()])

    assert labels.tolist() == split.labels.tolist()


def test_samples_are_drawn_whole(tmp_path):
    """A PNG of grey and of coloured samples; no other file is left, and a folder that is not there is named."""
    from PIL import Image

    for data in ("synthetic-digits", "synthetic-cifar"):
        keras_options.draw_samples(data, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [sample_plot.NAME]
        with Image.open(tmp_path / sample_plot.NAME) as drawn:
            assert drawn.format == "PNG"
            assert len(drawn.convert("L").getcolors(1 << 16)) > 10
    split = load("synthetic-digits", train=1, test=0).train
    with pytest.raises(WorkloadError, match="the samples cannot be drawn to"):
        sample_plot.draw(split, CLASS_NAMES["synthetic-digits"], "title", tmp_path / "nowhere" / sample_plot.NAME)


def test_without_the_plotting_library_a_sentence_says_so(tmp_path, monkeypatch, capsys):
    """Nothing is drawn, and training goes on."""
    monkeypatch.setattr(sample_plot, "can_draw", lambda: False)
    keras_options.draw_samples("synthetic-digits", tmp_path)

    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err.startswith("No samples are drawn: matplotlib is not installed; ")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    """A file stands where the folder should be."""
    (tmp_path / "file").touch()

    with pytest.raises(WorkloadError, match=r"^--folder .* cannot be made \(.*\); name another$"):
        make_folder(tmp_path / "file" / "below")


SIZES = ["--epochs", "2", "--steps-per-epoch", "4", "--steps-per-execution", "2", "--train-size", "20"]
SIZES += ["--test-size", "6", "--batch-size", "4"]
SIDES = {
    "native": ["--native"],
    "one IPU": ["--ipu-target", "emulator"],
    "replicas": ["--replicas", "2", "--ipu-target", "emulator"],
}


@needs_tensorflow
@pytest.mark.parametrize("side", SIDES)
def test_the_command_trains(side, tmp_path):
    """A line for each epoch and the accuracy on stdout, bars on stderr, and a picture of samples."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop(DATA_VARIABLE, None)
    line = [sys.executable, "-m", "ipu_conformance", "train", "keras-mnist", *SIDES[side], *SIZES]
    made = subprocess.run(line, capture_output=True, text=True, check=False, timeout=200, cwd=tmp_path, env=environment)

    assert made.returncode == 0, made.stderr
    lines = made.stdout.splitlines()
    assert lines[0] == "Drew some samples to keras_mnist/samples.png"
    assert [text.split(",")[0] for text in lines[1:3]] == ["Epoch 1/2", "Epoch 2/2"]
    assert all(", loss " in text and ", accuracy " in text for text in lines[1:3])
    assert lines[3:] == [lines[-1]]
    assert lines[-1].startswith("Accuracy on test set: ")
    assert "Epoch 2/2: 100%" in made.stderr
    assert "4/4" in made.stderr
    assert [path.name for path in (tmp_path / "keras_mnist").iterdir()] == [sample_plot.NAME]


BAD_INPUT = [
    (["keras-mnist", "--native", "--epochs", "0"], "--epochs is 0; give 1 or more"),
    (
        ["keras-mnist", "--native", "--replicas", "2"],
        "--replicas is 2, and without IPUs there is one model on the host",
    ),
    (["keras-mnist", "--ipu-target", "hardware"], "keras-mnist cannot run on target 'hardware': "),
    (["keras-cifar10", "--native", "--ipus", "2"], "--ipus is 2, and without IPUs there is one model on the host"),
    (["keras-cifar10", "--native", "--approach", "other"], "--approach is 'other'; choose from strategy"),
    (
        ["keras-cifar10", "--native", "--gradient-accumulation-count", "2"],
        "--gradient-accumulation-count is 2, and without IPUs there is one model on the host",
    ),
]


def fresh(text, *arguments, cwd=None):
    """What a program of its own prints."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop(DATA_VARIABLE, None)
    program = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=True, cwd=cwd, env=environment).stdout


def test_bad_input_is_one_sentence_and_imports_no_framework(tmp_path):
    """The exit code is 2, nothing is written, and TensorFlow is not imported; nor is it for help."""
    text = """
        import contextlib, io, json, sys
        from ipu_conformance import cli
        for words in json.loads(sys.argv[1]):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                code = cli.main(["train", *words])
            print(json.dumps([code, said.getvalue(), "tensorflow" in sys.modules]))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            cli.main(["train", "--help"])
        print(json.dumps([name for name in ("tensorflow", "torch", "paddle") if name in sys.modules]))
    """
    *answers, imported = map(
        json.loads, fresh(text, json.dumps([words for words, _ in BAD_INPUT]), cwd=tmp_path).splitlines()
    )

    assert imported == []
    assert len(answers) == len(BAD_INPUT)
    for (words, sentence), (code, said, framework) in zip(BAD_INPUT, answers):
        assert (code, framework) == (2, False), words
        assert said.startswith(f"ipu-conformance: error: {sentence}")
        assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@needs_tensorflow
def test_the_native_twins_touch_no_ipu_api_and_no_emulator(tmp_path):
    """A native run imports neither the emulator nor the vendor's package."""
    text = """
        import sys
        from ipu_conformance.workloads import keras_cifar10, keras_mnist
        from ipu_conformance.workloads.keras_cifar10 import strategy
        from ipu_conformance.workloads.keras_mnist import training
        digits = keras_mnist.Settings("synthetic-digits", 1, 2, 1, 4, 3, 2)
        training.train(digits, native=True)
        pictures = keras_cifar10.Settings(epochs=1, train_size=4, test_size=3, batch_size=2)
        strategy.train(pictures, native=True)
        print([name for name in sys.modules if "emulator" in name or name.endswith(".ipu")])
    """

    assert fresh(text, cwd=tmp_path) == "[]\n"
