"""What only the Keras digits workload has: its network, its data and its command."""

import numpy as np
import pytest

from ipu_conformance.data import load
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workloads import plots
from tests.unit.commands import trained

pytestmark = pytest.mark.skipif(not FRAMEWORKS["tensorflow"].installed, reason="needs tensorflow")


def test_the_network_has_the_published_shapes():
    """784 pixels, 128 hidden units, 10 probabilities; the seed decides the weights."""
    from ipu_conformance.workloads.keras_mnist.training import build

    first, again, other = build(3), build(3), build(4)

    assert [weight.shape for weight in first.get_weights()] == [(784, 128), (128,), (128, 10), (10,)]
    assert [layer.activation.__name__ for layer in first.layers[1:]] == ["relu", "softmax"]
    assert all(map(np.array_equal, first.get_weights(), again.get_weights()))
    assert not np.array_equal(first.get_weights()[0], other.get_weights()[0])


def test_training_samples_come_in_a_new_order_in_every_pass():
    """Batches go on over the end of a pass; images keep their labels; the seed alone decides the order."""
    import tensorflow as tf

    from ipu_conformance.workloads.keras.data import training_set

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


def test_test_samples_come_in_their_order():
    """Every sample once."""
    from ipu_conformance.workloads.keras.data import test_set

    split = load("synthetic-digits", train=0, test=12).test
    labels = np.concatenate([labels for _, labels in test_set(split, 4).as_numpy_iterator()])

    assert labels.tolist() == split.labels.tolist()


WHERE = {
    "native": ["--native"],
    "one IPU": ["--ipu-target", "emulator"],
    "replicas": ["--replicas", "2", "--ipu-target", "emulator"],
}


@pytest.mark.parametrize("where", WHERE, ids="tensorflow-{}".format)
def test_the_command_trains(where, tmp_path, after_tensorflow):
    """A line for each epoch and the accuracy on stdout, no bars in a log, and a picture of samples."""
    sizes = "--epochs 2 --steps-per-epoch 4 --steps-per-execution 2 --train-size 20 --test-size 6 --batch-size 4"
    lines, bars = trained("train", "keras-mnist", *WHERE[where], *sizes.split(), cwd=tmp_path, start=after_tensorflow)

    assert lines[0] == "Drew some samples to keras_mnist/samples.png"
    assert [text.split(",")[0] for text in lines[1:3]] == ["Epoch 1/2", "Epoch 2/2"]
    assert all(", loss " in text and ", accuracy " in text for text in lines[1:3])
    assert lines[3:] == [lines[-1]]
    assert lines[-1].startswith("Accuracy on test set: ")
    assert "100%" not in bars
    assert [path.name for path in (tmp_path / "keras_mnist").iterdir()] == [plots.SAMPLES]
