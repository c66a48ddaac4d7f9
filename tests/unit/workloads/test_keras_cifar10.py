"""The settings, the network and the command of the workload on small pictures."""

import argparse
import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_conformance.data import load
from ipu_conformance.data.places import DATA_VARIABLE
from ipu_conformance.workloads import WorkloadError, keras_cifar10
from ipu_conformance.workloads.keras_cifar10 import Settings
from ipu_conformance.workloads.keras_cifar10.settings import APPROACHES, MOST_STEPS
from ipu_conformance.workloads.real_data import choose

needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs tensorflow")

PIPELINE = {"approach": "pipeline", "ipus": 2, "gradient_accumulation_count": 4}
REFUSED = {
    "approach": (
        {"approach": "guessing"},
        "--approach is 'guessing'; choose from strategy, estimator, replica, pipeline",
    ),
    "epochs": ({"epochs": 0}, "--epochs is 0; give 1 or more"),
    "tests": ({"test_size": 0}, "--test-size is 0; give 1 or more"),
    "batch": ({"batch_size": 0}, "--batch-size is 0; give 1 or more"),
    "ipus": ({"ipus": 0}, "--ipus is 0; give 1 or more"),
    "rate": ({"learning_rate": -1.0}, "--lr is -1.0; give a positive number"),
    "seed": ({"seed": -1}, "--seed is -1; give a number from 0 to 2**31 - 1"),
    "few samples": (
        {"train_size": 15},
        "--train-size is 15, and one update takes 16 samples; give at least as many",
    ),
    "odd batch": (
        {"ipus": 3},
        "--batch-size is 16, which 3 replicas (--ipus) cannot share equally; give a multiple of 3",
    ),
    "no micro-batch": (
        {"gradient_accumulation_count": 0},
        "--gradient-accumulation-count is 0; give 1 or more",
    ),
    "odd micro-batches": (
        {"ipus": 2, "gradient_accumulation_count": 3},
        "--batch-size is 16, which 3 micro-batches (--gradient-accumulation-count) of 2 replicas cannot share equally; "
        "give a multiple of 6",
    ),
    "two IPUs of an estimator": (
        {"approach": "estimator", "ipus": 2},
        "--ipus is 2, and the approach estimator has one IPU; leave --ipus out, or use --approach replica",
    ),
    "half a pipeline": (
        {**PIPELINE, "ipus": 3},
        "--ipus is 3, and a pipeline has 2 of them; give a multiple of 2",
    ),
    "a pipeline that does not fill": (
        {**PIPELINE, "gradient_accumulation_count": 2},
        "--gradient-accumulation-count is 2, and a pipeline of 2 stages takes two for each; give a multiple of 4",
    ),
    "odd tests of a pipeline": (
        {**PIPELINE, "test_size": 401},
        "--test-size is 401, and 2 IPUs work on as many samples at once; give a multiple of 2",
    ),
    "nothing in the first stage": (
        {**PIPELINE, "model_shard_position": 0},
        "--model-shard-position is 0, and both parts of the network's 12 layers need one; give a number from 1 to 11",
    ),
    "nothing in the second stage": (
        {**PIPELINE, "model_shard_position": 9, "dropout": False},
        "--model-shard-position is 9, and both parts of the network's 9 layers need one; give a number from 1 to 8",
    ),
    "a cut without a pipeline": (
        {"approach": "replica", "model_shard_position": 4},
        "--model-shard-position is 4, and the approach replica does not cut the network; leave it out, or use "
        "--approach pipeline",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_work_are_refused_in_a_sentence(case):
    """The sentence says what was given, what is allowed and what to do."""
    given_values, sentence = REFUSED[case]
    with pytest.raises(WorkloadError) as refused:
        Settings(**given_values)

    assert str(refused.value) == sentence


@given(st.integers(1, 40), st.integers(1, 4000), st.integers(0, 39))
@settings(max_examples=60, deadline=None)
def test_executions_divide_an_epoch(batch, steps, more):
    """An execution has as many steps as it may, and an epoch is a whole number of executions."""
    chosen = Settings(batch_size=batch, train_size=batch * steps + more % batch)

    assert chosen.steps == steps
    assert steps % chosen.steps_per_execution == 0
    assert not any(steps % n == 0 for n in range(chosen.steps_per_execution + 1, min(steps, MOST_STEPS) + 1))


@given(st.sampled_from(sorted(APPROACHES)), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_an_update_takes_a_batch_however_ipus_share_it(approach, replicas, count, samples, tests):
    """Replicas' micro-batches make up a batch, and every replica has whole batches of the test set."""
    replicas = 1 if approach == "estimator" else replicas
    pipeline = approach == "pipeline"
    count, ipus = (4 * count, 2 * replicas) if pipeline else (count, replicas)
    batch = replicas * count * samples
    chosen = Settings(
        approach, batch_size=batch, train_size=batch, test_size=tests * ipus, ipus=ipus,
        gradient_accumulation_count=count,
    )  # fmt: skip

    assert chosen.replicas == replicas
    assert chosen.micro_batch == samples
    assert tests * ipus % (chosen.test_batch * ipus) == 0


@pytest.mark.parametrize("dropout", [True, False])
def test_a_pipeline_is_cut_anywhere_between_two_layers(dropout):
    """Every place from behind the first layer to before the last is taken; by default it is behind the first block."""
    most = Settings(dropout=dropout).layers - 1

    cuts = [Settings(**PIPELINE, dropout=dropout, model_shard_position=number).cut for number in range(1, most + 1)]
    assert cuts == list(range(1, most + 1))
    assert Settings(**PIPELINE, dropout=dropout).cut == (4 if dropout else 3)


def options(*words):
    """The settings that a command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--native", action="store_true")
    keras_cifar10.configure(parser)
    return keras_cifar10.settings_of(parser.parse_args(words))


def test_the_published_figures_are_the_defaults(monkeypatch):
    """Batches of 16, SGD 0.01, 150 epochs of all pictures of CIFAR-10."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    chosen = options("--data", "cifar10")

    assert (chosen.batch_size, chosen.learning_rate, chosen.epochs) == (16, 0.01, 150)
    assert (chosen.train_size, chosen.test_size, chosen.ipus, chosen.approach) == (50_000, 10_000, 1, "strategy")
    assert options() == Settings()
    assert options("--ipus", "2", "--epochs", "7", "--seed", "3", "--lr", "0.5") == Settings(
        ipus=2, epochs=7, seed=3, learning_rate=0.5
    )
    assert options("--approach", "estimator") == Settings("estimator")
    assert options("--approach", "replica") == Settings("replica", ipus=2)
    assert options("--approach", "pipeline") == Settings(**PIPELINE)
    shaped = ("--gradient-accumulation-count", "8", "--model-shard-position", "7", "--ipus", "4", "--no-dropout")
    assert options("--approach", "pipeline", *shaped) == Settings(
        "pipeline", ipus=4, gradient_accumulation_count=8, model_shard_position=7, dropout=False
    )


def test_auto_takes_real_pictures_only_where_the_user_put_them(tmp_path, monkeypatch):
    """Without IPU_CONFORMANCE_DATA, or with a folder that has none, pictures are synthetic."""
    names = {"real": "cifar10", "synthetic": "synthetic-cifar"}
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert choose("auto", **names) == "synthetic-cifar"
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert choose("auto", **names) == "synthetic-cifar"
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        folder = tmp_path / "cifar-10-batches-py"
        folder.mkdir(exist_ok=True)
        (folder / name).touch()
    assert choose("auto", **names) == "cifar10"
    assert choose("synthetic-cifar", **names) == "synthetic-cifar"


def test_every_approach_leads_to_a_module():
    """The table's rows lead somewhere."""
    for module in APPROACHES.values():
        assert importlib.util.find_spec(module) is not None


@needs_tensorflow
def test_the_network_is_that_of_the_public_example():
    """Two blocks of two convolutions, 32 and 64 channels, and 512 hidden units; the seed decides the weights."""
    from ipu_conformance.workloads.keras_cifar10.model import build

    model = build(3)
    kernels = [weight.shape for weight in model.get_weights()[::2]]
    rates = [layer.rate for layer in model.layers if hasattr(layer, "rate")]

    assert kernels == [(3, 3, 3, 32), (3, 3, 32, 32), (3, 3, 32, 64), (3, 3, 64, 64), (2304, 512), (512, 10)]
    assert rates == [0.25, 0.25, 0.5]
    assert model.output_shape == (None, 10)
    assert len(model.layers) == Settings().layers
    assert len(build(3, dropout=False).layers) == Settings(dropout=False).layers
    assert [type(layer).__name__ for layer in model.layers[:5]][-2:] == ["Dropout", "Conv2D"]
    assert all(map(np.array_equal, model.get_weights(), build(3).get_weights()))
    assert not np.array_equal(model.get_weights()[0], build(4).get_weights()[0])


@needs_tensorflow
def test_pixels_run_from_zero_to_one():
    """Colours come last."""
    from ipu_conformance.workloads.keras_data import test_set

    split = load("synthetic-cifar", train=0, test=4).test
    ((images, labels),) = test_set(split, 4).as_numpy_iterator()

    assert images.shape == (4, 32, 32, 3)
    assert np.array_equal(np.rint(images * 255).astype(np.uint8), split.images)
    assert labels.tolist() == split.labels.tolist()


COMMANDS = {
    "strategy": ["--ipus", "2"],
    "estimator": ["--gradient-accumulation-count", "2"],
    "replica": [],
    "pipeline": ["--ipus", "4", "--model-shard-position", "9", "--batch-size", "8"],
}


@needs_tensorflow
@pytest.mark.parametrize("approach", COMMANDS)
def test_the_command_trains(approach, tmp_path):
    """A line for each epoch and the accuracy on stdout, bars on stderr, and a picture of samples: nothing else."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop(DATA_VARIABLE, None)
    sizes = ["--epochs", "2", "--train-size", "8", "--test-size", "4", "--batch-size", "4"]
    words = ["train", "keras-cifar10", "--approach", approach, "--ipu-target", "emulator", *sizes, *COMMANDS[approach]]
    made = subprocess.run(
        [sys.executable, "-m", "ipu_conformance", *words],
        capture_output=True, text=True, check=False, timeout=200, cwd=tmp_path, env=environment,
    )  # fmt: skip

    assert made.returncode == 0, made.stderr
    lines = made.stdout.splitlines()
    assert lines[0] == "Drew some samples to keras_cifar10/samples.png"
    assert [text.split(",")[0] for text in lines[1:3]] == ["Epoch 1/2", "Epoch 2/2"]
    assert all(text.split(", ")[1].startswith("loss ") for text in lines[1:3])
    assert lines[3].startswith("Accuracy on test set: ")
    assert len(lines) == 4
    assert "Epoch 2/2: 100%" in made.stderr
    assert "WARNING" not in made.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["samples.png"]
