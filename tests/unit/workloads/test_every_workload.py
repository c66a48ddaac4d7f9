"""The settings of every workload, the options that they are read from, and what every run checks."""

import argparse
import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.data.dataset import SPLITS
from ipu_conformance.data.formats.idx import IMAGE_FILES, LABEL_FILES
from ipu_conformance.data.places import CACHE_VARIABLE, DATA_VARIABLE
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workloads import (
    WORKLOADS,
    WorkloadError,
    estimator_cnn,
    keras_cifar10,
    keras_mnist,
    paddle_mnist,
    poptorch_mnist,
)
from ipu_conformance.workloads.options import (
    MOST_TEST_SAMPLES,
    check_equal_parts,
    choose_data,
    largest_test_batch,
    make_folder,
)
from tests.unit.examples import at_most

PACKAGES = {each.NAME: each for each in (poptorch_mnist, paddle_mnist, keras_mnist, keras_cifar10, estimator_cnn)}


def test_every_workload_names_a_framework_and_a_module():
    """The table's rows lead somewhere."""
    assert list(WORKLOADS) == list(PACKAGES)
    for name, workload in WORKLOADS.items():
        assert name == workload.name
        assert workload.framework in FRAMEWORKS
        assert importlib.import_module(workload.module) is PACKAGES[name]


# Settings

PIPELINE = {"approach": "pipeline", "ipus": 2, "gradient_accumulation_count": 4}
REFUSED = {
    "poptorch-mnist": (
        ({"epochs": 0}, "--epochs is 0; give 1 or more"),
        ({"batch_size": -1}, "--batch-size is -1; give 1 or more"),
        ({"test_batch_size": 0}, "--test-batch-size is 0; give 1 or more"),
        ({"device_iterations": 0}, "--device-iterations is 0; give 1 or more"),
        ({"learning_rate": 0.0}, "--lr is 0.0; give a positive number"),
        ({"learning_rate": float("nan")}, "--lr is nan; give a positive number"),
        ({"seed": -1}, "--seed is -1; give a number from 0 to 2**63 - 1"),
        (
            {"train_size": 399},
            "--train-size is 399, and one call of the model takes 400 samples (50 device iterations of 8); give at "
            "least as many",
        ),
        (
            {"test_size": 100},
            "--test-size is 100, which --test-batch-size 80 does not divide; give a multiple of it, so that every test "
            "sample counts",
        ),
    ),
    "paddle-mnist": (
        ({"epochs": 0}, "--epochs is 0; give 1 or more"),
        ({"batch_size": -1}, "--batch-size is -1; give 1 or more"),
        ({"test_size": 0}, "--test-size is 0; give 1 or more"),
        ({"num_ipus": 0}, "--num_ipus is 0; give 1 or more"),
        ({"replication_factor": 0}, "--replication-factor is 0; give 1 or more"),
        ({"learning_rate": 0.0}, "--lr is 0.0; give a positive number"),
        ({"learning_rate": float("nan")}, "--lr is nan; give a positive number"),
        ({"seed": -1}, "--seed is -1; give a number from 0 to 2**31 - 2"),
        ({"seed": 2**31 - 1}, "--seed is 2147483647; give a number from 0 to 2**31 - 2"),
        ({"train_size": 63}, "--train-size is 63, and one update takes 64 samples; give at least as many"),
        (
            {"num_ipus": 4, "replication_factor": 3},
            "--replication-factor is 3, which does not divide the 4 IPUs of --num_ipus; give every replica the same "
            "number of IPUs",
        ),
        (
            {"num_ipus": 8, "replication_factor": 2},
            "--num_ipus is 8, which gives each of 2 replicas 4 IPUs, and the network is cut for at most 2; use fewer "
            "IPUs or more replicas",
        ),
        (
            {"num_ipus": 4, "replication_factor": 2, "batch_size": 36},
            "--batch-size is 36, which 2 replicas with 4 micro-batches each cannot share equally; give a multiple of 8",
        ),
    ),
    "keras-mnist": (
        ({"epochs": 0}, "--epochs is 0; give 1 or more"),
        ({"steps_per_epoch": 0}, "--steps-per-epoch is 0; give 1 or more"),
        ({"steps_per_execution": -1}, "--steps-per-execution is -1; give 1 or more"),
        ({"train_size": 0}, "--train-size is 0; give 1 or more"),
        ({"test_size": 0}, "--test-size is 0; give 1 or more"),
        ({"batch_size": 0}, "--batch-size is 0; give 1 or more"),
        ({"replicas": 0}, "--replicas is 0; give 1 or more"),
        ({"learning_rate": 0.0}, "--lr is 0.0; give a positive number"),
        ({"learning_rate": float("nan")}, "--lr is nan; give a positive number"),
        ({"seed": -1}, "--seed is -1; give a number from 0 to 2**31 - 1"),
        ({"seed": 2**31}, "--seed is 2147483648; give a number from 0 to 2**31 - 1"),
        (
            {"steps_per_execution": 300},
            "--steps-per-execution is 300, which does not divide the 2000 of --steps-per-epoch; give a divisor of them",
        ),
        (
            {"replicas": 3},
            "--batch-size is 32, which 3 replicas (--replicas) cannot share equally; give a multiple of 3",
        ),
        (
            {"replicas": 4, "test_size": 30},
            "--test-size is 30, which 4 replicas (--replicas) cannot share equally; give a multiple of 4",
        ),
    ),
    "keras-cifar10": (
        ({"approach": "guessing"}, "--approach is 'guessing'; choose from strategy, estimator, replica, pipeline"),
        ({"epochs": 0}, "--epochs is 0; give 1 or more"),
        ({"test_size": 0}, "--test-size is 0; give 1 or more"),
        ({"batch_size": 0}, "--batch-size is 0; give 1 or more"),
        ({"ipus": 0}, "--ipus is 0; give 1 or more"),
        ({"learning_rate": -1.0}, "--lr is -1.0; give a positive number"),
        ({"seed": -1}, "--seed is -1; give a number from 0 to 2**31 - 1"),
        ({"train_size": 15}, "--train-size is 15, and one update takes 16 samples; give at least as many"),
        ({"ipus": 3}, "--batch-size is 16, which 3 replicas (--ipus) cannot share equally; give a multiple of 3"),
        ({"gradient_accumulation_count": 0}, "--gradient-accumulation-count is 0; give 1 or more"),
        (
            {"ipus": 2, "gradient_accumulation_count": 3},
            "--batch-size is 16, which 3 micro-batches (--gradient-accumulation-count) of 2 replicas cannot share "
            "equally; give a multiple of 6",
        ),
        (
            {"approach": "estimator", "ipus": 2},
            "--ipus is 2, and the approach estimator has one IPU; leave --ipus out, or use --approach replica",
        ),
        ({**PIPELINE, "ipus": 3}, "--ipus is 3, and a pipeline has 2 of them; give a multiple of 2"),
        (
            {**PIPELINE, "gradient_accumulation_count": 2},
            "--gradient-accumulation-count is 2, and a pipeline of 2 stages takes two for each; give a multiple of 4",
        ),
        (
            {**PIPELINE, "test_size": 401},
            "--test-size is 401, and 2 IPUs work on as many samples at once; give a multiple of 2",
        ),
        (
            {**PIPELINE, "model_shard_position": 0},
            "--model-shard-position is 0, and both parts of the network's 12 layers need one; give a number from 1 to "
            "11",
        ),
        (
            {**PIPELINE, "model_shard_position": 9, "dropout": False},
            "--model-shard-position is 9, and both parts of the network's 9 layers need one; give a number from 1 to 8",
        ),
        (
            {"approach": "replica", "model_shard_position": 4},
            "--model-shard-position is 4, and the approach replica does not cut the network; leave it out, or use "
            "--approach pipeline",
        ),
    ),
    "estimator-cnn": (
        ({"epochs": 0}, "--epochs is 0; give 1 or more"),
        ({"steps": 0}, "--steps is 0; give 1 or more"),
        ({"test_size": 0}, "--test-size is 0; give 1 or more"),
        ({"batch_size": 0}, "--batch-size is 0; give 1 or more"),
        ({"batches_per_step": -1}, "--batches-per-step is -1; give 1 or more"),
        ({"learning_rate": float("nan")}, "--learning-rate is nan; give a positive number"),
        ({"seed": 2**31}, "--seed is 2147483648; give a number from 0 to 2**31 - 1"),
        ({"train_size": 15}, "--train-size is 15, and one update takes 16 samples; give at least as many"),
        (
            {"steps": 750},
            "--steps is 750, and the device makes 500 at a time (--batches-per-step); give a multiple of 500",
        ),
    ),
}


def one_of(table):
    """Each row of the tables of workloads as a parameter."""
    return [
        pytest.param(name, *row, id=f"{name.replace('-', '_')} {number}")
        for name, rows in table.items()
        for number, row in enumerate(rows)
    ]


@pytest.mark.parametrize(("name", "values", "sentence"), one_of(REFUSED))
def test_settings_that_cannot_work_are_refused_in_a_sentence(name, values, sentence):
    """The sentence says what was given, what is allowed and what to do."""
    with pytest.raises(WorkloadError) as refused:
        PACKAGES[name].Settings(**values)

    assert str(refused.value) == sentence


@given(st.integers(1, 16), st.integers(1, 400))
@at_most(60)
def test_replicas_share_the_test_set_equally(replicas, part):
    """Every replica has whole batches, nothing is left over, and no batch could be larger."""
    size = replicas * part
    batch = largest_test_batch(replicas, size)

    check_equal_parts("--replicas", replicas, replicas, size)
    assert 1 <= batch <= MOST_TEST_SAMPLES
    assert size % (replicas * batch) == 0
    assert not any(part % larger == 0 for larger in range(batch + 1, min(part, MOST_TEST_SAMPLES) + 1))


# Options


def parsed(name, *words):
    """What a command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--native", action="store_true")
    PACKAGES[name].configure(parser)
    return parser.parse_args(words)


MNIST = {"data": "mnist", "epochs": 4, "train_size": 60_000, "test_size": 10_000}
CIFAR10 = {"data": "cifar10", "train_size": 50_000, "test_size": 10_000}
ASKED = {
    "poptorch-mnist": (
        ("", {}),
        (
            "--data mnist",
            {**MNIST, "epochs": 10, "learning_rate": 0.03, "batch_size": 8, "device_iterations": 50, "dropout": 0.5},
        ),
        (
            "--epochs 2 --train-size 12 --test-size 9 --batch-size 2 --test-batch-size 3 --device-iterations 4 "
            "--seed 5 --lr 0.5",
            {"epochs": 2, "train_size": 12, "test_size": 9, "batch_size": 2, "test_batch_size": 3,
             "device_iterations": 4, "seed": 5, "learning_rate": 0.5},
        ),
    ),
    "paddle-mnist": (
        ("", {}),
        (
            "--data mnist",
            {**MNIST, "batch_size": 64, "learning_rate": 1e-3, "num_ipus": 1, "replication_factor": 1, "seed": 0},
        ),
        (
            "--num_ipus 4 --replication_factor 2 --no_pipelining",
            {"num_ipus": 4, "replication_factor": 2, "pipelining": False},
        ),
        (
            "--num-ipus 4 --replication-factor 2 --no-pipelining",
            {"num_ipus": 4, "replication_factor": 2, "pipelining": False},
        ),
    ),
    "keras-mnist": (
        ("", {}),
        (
            "--data mnist",
            {**MNIST, "batch_size": 32, "steps_per_execution": 100, "steps_per_epoch": 2000, "learning_rate": 0.01,
             "replicas": 1, "seed": 0},
        ),
        (
            "--epochs 3 --steps-per-epoch 20 --steps-per-execution 5 --train-size 7 --test-size 8 --batch-size 6 "
            "--replicas 2 --seed 9 --lr 0.5",
            {"epochs": 3, "steps_per_epoch": 20, "steps_per_execution": 5, "train_size": 7, "test_size": 8,
             "batch_size": 6, "replicas": 2, "seed": 9, "learning_rate": 0.5},
        ),
    ),
    "keras-cifar10": (
        ("", {}),
        (
            "--data cifar10",
            {**CIFAR10, "epochs": 150, "batch_size": 16, "learning_rate": 0.01, "ipus": 1, "approach": "strategy"},
        ),
        ("--ipus 2 --epochs 7 --seed 3 --lr 0.5", {"ipus": 2, "epochs": 7, "seed": 3, "learning_rate": 0.5}),
        ("--approach estimator", {"approach": "estimator"}),
        ("--approach replica", {"approach": "replica", "ipus": 2}),
        ("--approach pipeline", PIPELINE),
        (
            "--approach pipeline --gradient-accumulation-count 8 --model-shard-position 7 --ipus 4 --no-dropout",
            {"approach": "pipeline", "ipus": 4, "gradient_accumulation_count": 8, "model_shard_position": 7,
             "dropout": False},
        ),
    ),
    "estimator-cnn": (
        ("", {}),
        ("--batch-size 16 --batches-per-step 500 --learning-rate 0.001", {"learning_rate": 0.001}),
        ("--data cifar10 --lr 0.001", {**CIFAR10, "epochs": 10, "learning_rate": 0.001}),
        ("--steps 1000 --seed 3 --no-dropout", {"steps": 1000, "seed": 3, "dropout": False}),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "words", "values"), one_of(ASKED))
def test_options_become_settings(name, words, values, monkeypatch):
    """What is not given is the default, or follows from the data set; the published figures are those of real data."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    package = PACKAGES[name]

    assert package.settings_of(parsed(name, *words.split())) == package.Settings(**values)


CIFAR_FILES = [f"cifar-10-batches-py/{name}" for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")]
MNIST_FILES = [name for split in SPLITS for name in (IMAGE_FILES[split], LABEL_FILES[split])]


@pytest.mark.parametrize(
    ("package", "files"), [(keras_mnist, MNIST_FILES), (keras_cifar10, CIFAR_FILES)], ids=["digits", "pictures"]
)
def test_auto_takes_real_data_only_where_the_user_put_them(package, files, tmp_path, monkeypatch):
    """IPU_CONFORMANCE_DATA decides, or what was fetched: caches of other programs do not change what a run means."""
    synthetic, real = package.BUDGETS
    for file in files:
        path = tmp_path / "data" / file  # where torchvision's programs put them
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "empty"))
    assert choose_data("auto", package.BUDGETS) == synthetic
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "empty"))
    assert choose_data("auto", package.BUDGETS) == synthetic
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "data"))
    assert choose_data("auto", package.BUDGETS) == real
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "empty"))
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    assert choose_data("auto", package.BUDGETS) == real
    assert choose_data(synthetic, package.BUDGETS) == synthetic


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    """A file stands where the folder should be."""
    (tmp_path / "file").touch()

    with pytest.raises(WorkloadError, match=r"^--folder .* cannot be made \(.*\); name another$"):
        make_folder(tmp_path / "file" / "below")
