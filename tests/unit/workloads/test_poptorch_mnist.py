"""What only the PopTorch digits workload has: its calls, its network, its data and its command."""

import re
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workloads.poptorch_mnist import Settings
from tests.unit.commands import trained
from tests.unit.examples import at_most
from tests.unit.workloads.test_bars import Terminal

needs_torch = pytest.mark.skipif(not FRAMEWORKS["poptorch"].installed, reason="needs torch")

TINY = Settings(epochs=1, train_size=12, test_size=9, batch_size=2, test_batch_size=3, device_iterations=3)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60))
@at_most(50)
def test_every_test_sample_is_in_a_whole_call(batch, batches, iterations):
    """Calls of the inference model divide the test set, and none is longer than a call of the training model."""
    chosen = Settings(test_batch_size=batch, test_size=batch * batches, device_iterations=iterations, train_size=10**6)

    assert chosen.test_size % (chosen.test_iterations * batch) == 0
    assert 1 <= chosen.test_iterations <= iterations


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
    from ipu_conformance.workloads.poptorch_mnist.model import datasets

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
    from ipu_conformance.workloads.poptorch_mnist.trainers import NativeTrainer

    trainer = NativeTrainer(Network(), TINY)
    numbered = TensorDataset(torch.arange(TINY.train_size), torch.arange(TINY.train_size))
    batches = trainer.training_batches(numbered)
    first, second = ([int(x) for images, _ in batches for x in images] for _ in range(2))

    assert sorted(first) == sorted(second) == list(range(TINY.train_size))
    assert first != second
    assert [int(x) for images, _ in trainer.test_batches(numbered) for x in images] == list(range(TINY.train_size))


@needs_torch
@pytest.mark.parametrize(
    ("where", "iterations"),
    [(["--native"], "4"), (["--ipu-target", "emulator"], "4"), (["--ipu-target", "emulator"], "1")],
    ids=["native", "emulated", "one-iteration"],
)
def test_the_command_trains(where, iterations, after_torch):
    """The only line of the output is the accuracy on the test set; a log has no bars, but what the run is about."""
    sizes = "--epochs 1 --train-size 24 --test-size 9 --batch-size 2 --test-batch-size 3 --device-iterations"
    lines, bars = trained("train", "poptorch-mnist", *where, *sizes.split(), iterations, start=after_torch)

    assert len(lines) == 1
    assert lines[0].startswith("Accuracy on test set: ")
    assert lines[0].endswith("%")
    where = "without any IPU API" if "--native" in where else "on emulator"
    assert re.match(rf"poptorch-mnist: torch \S+ {where}, ipu-conformance \S+, data set synthetic-digits\n", bars)
    assert "100%" not in bars


@needs_torch
def test_bars_show_loss_and_accuracy_on_a_terminal(monkeypatch):
    """Those of the last call."""
    import torch

    from ipu_conformance.workloads.poptorch_mnist.training import train_epoch

    class Trainer:
        def train(self, images, labels):
            return torch.eye(4)[[0, 1, 2, 0]], torch.tensor([0.5, 0.25])

    stream = Terminal()
    trainer: Any = Trainer()
    monkeypatch.setattr(sys, "stderr", stream)
    losses = train_epoch(trainer, [(None, torch.arange(4))] * 3, title="Epoch 1/5")

    assert losses == [0.5, 0.25] * 3
    assert "Epoch 1/5: 100%" in stream.getvalue()
    assert "loss 0.3750, accuracy 75.00%" in stream.getvalue()
