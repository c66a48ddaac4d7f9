"""What only the workload on small pictures has: its approaches, its network and its command."""

from typing import Any, Dict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.data import load
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workloads.keras_cifar10 import APPROACHES, MOST_STEPS, Settings
from tests.unit.commands import trained
from tests.unit.examples import at_most

needs_tensorflow = pytest.mark.skipif(not FRAMEWORKS["tensorflow"].installed, reason="needs tensorflow")

PIPELINE: Dict[str, Any] = {"approach": "pipeline", "ipus": 2, "gradient_accumulation_count": 4}


@given(st.integers(1, 40), st.integers(1, 4000), st.integers(0, 39))
@at_most(60)
def test_executions_divide_an_epoch(batch, steps, more):
    """An execution has as many steps as it may, and an epoch is a whole number of executions."""
    chosen = Settings(batch_size=batch, train_size=batch * steps + more % batch)

    assert chosen.steps == steps
    assert steps % chosen.steps_per_execution == 0
    assert not any(steps % n == 0 for n in range(chosen.steps_per_execution + 1, min(steps, MOST_STEPS) + 1))


@given(st.sampled_from(sorted(APPROACHES)), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 60))
@at_most(60)
def test_an_update_takes_a_batch_however_ipus_share_it(approach, replicas, count, samples, tests):
    """Replicas' micro-batches make up a batch, and every replica has whole batches of the test set."""
    replicas = 1 if approach == "estimator" else replicas
    pipeline = approach == "pipeline"
    count, ipus = (4 * count, 2 * replicas) if pipeline else (count, replicas)
    batch = replicas * count * samples
    chosen = Settings(
        approach=approach, batch_size=batch, train_size=batch, test_size=tests * ipus, ipus=ipus,
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


@needs_tensorflow
def test_the_network_is_that_of_the_public_example():
    """Two blocks of two convolutions, 32 and 64 channels, and 512 hidden units; the seed decides the weights."""
    from ipu_conformance.workloads.keras.pictures import build

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
    from ipu_conformance.workloads.keras.data import test_set

    split = load("synthetic-cifar", train=0, test=4).test
    ((images, labels),) = test_set(split, 4).as_numpy_iterator()

    assert images.shape == (4, 32, 32, 3)
    assert np.array_equal(np.rint(images * 255).astype(np.uint8), split.images)
    assert labels.tolist() == split.labels.tolist()


COMMANDS = {
    "strategy": ["--ipus", "2"],
    "estimator": ["--gradient-accumulation-count", "2"],
    "replica": [],
    "pipeline": ["--model-shard-position", "9"],
}


@needs_tensorflow
@pytest.mark.parametrize("approach", COMMANDS, ids="tensorflow-{}".format)
def test_the_command_trains(approach, tmp_path, after_tensorflow):
    """A line for each epoch and the accuracy on stdout, no bars in a log, and a picture of samples: nothing else."""
    sizes = ["--epochs", "2", "--train-size", "8", "--test-size", "4", "--batch-size", "4", *COMMANDS[approach]]
    words = ["--approach", approach, "--ipu-target", "emulator", *sizes]
    lines, bars = trained("train", "keras-cifar10", *words, cwd=tmp_path, start=after_tensorflow)

    assert lines[0] == "Drew some samples to keras_cifar10/samples.png"
    assert [text.split(",")[0] for text in lines[1:3]] == ["Epoch 1/2", "Epoch 2/2"]
    assert all(text.split(", ")[1].startswith("loss ") for text in lines[1:3])
    assert lines[3].startswith("Accuracy on test set: ")
    assert len(lines) == 4
    assert "100%" not in bars
    assert "WARNING" not in bars
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["samples.png"]
