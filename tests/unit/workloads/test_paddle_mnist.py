"""What only the Paddle digits workload has: its flags, its data, pictures of digits and its commands."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ipu_conformance.data import load
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.workloads import WorkloadError
from ipu_conformance.workloads.paddle_mnist import MODEL_FILES, PIPELINED_ACCUMULATION, Settings, digits, model_folder
from ipu_conformance.workloads.paddle_mnist.digits import SIDE, Samples, datasets, filled, in_order, scaled
from ipu_conformance.workloads.paddle_mnist.infer import check_model
from tests.unit.commands import run, trained, write_picture
from tests.unit.examples import at_most

from .test_every_workload import parsed

TINY = Settings(epochs=2, train_size=40, test_size=11, batch_size=6)


@given(st.integers(1, 6), st.integers(1, 2), st.booleans(), st.integers(1, 5))
@at_most(60)
def test_the_micro_batches_of_all_replicas_are_one_batch(replicas, stages, pipelining, multiple):
    """However the IPUs are used, an update sees the same number of samples."""
    batch = multiple * replicas * PIPELINED_ACCUMULATION
    chosen = Settings(num_ipus=replicas * stages, replication_factor=replicas, pipelining=pipelining, batch_size=batch)

    assert chosen.micro_batch * chosen.accumulation * chosen.replication_factor == batch
    assert chosen.stages * chosen.replication_factor == chosen.num_ipus
    assert chosen.pipelined == (pipelining and stages == 2)
    # Two stages of training have this many micro-batches under way at once.
    assert chosen.accumulation >= (2 * (chosen.stages - 1) + 1 if chosen.pipelined else 1)


@pytest.mark.parametrize(
    ("words", "native"),
    [
        (["--use_ipu", "True"], False),
        (["--use_ipu", "false"], True),
        (["--use-ipu", "0"], True),
        (["--native"], True),
        (["--native", "--use_ipu", "True"], False),
    ],
    ids=["true", "false", "zero", "native", "both"],
)
def test_use_ipu_and_native_are_two_words_for_one_choice(words, native):
    """The last of them counts."""
    assert parsed("paddle-mnist", *words).native is native


def test_images_run_from_minus_one_to_one():
    """Pixels are scaled without statistics of the data set; labels stand in a column."""
    training, test = datasets(TINY)
    raw = load(TINY.data, train=TINY.train_size, test=TINY.test_size)

    assert training.images.shape == (TINY.train_size, 1, SIDE, SIDE)
    assert training.images.dtype == np.float32
    assert (float(training.images.min()), float(training.images.max())) == (-1.0, 1.0)
    assert np.array_equal(np.rint((test.images[:, 0] + 1) * 127.5), raw.test.images[..., 0])
    assert test.labels.shape == (TINY.test_size, 1)
    assert test.labels.dtype == np.int64
    assert test.labels[:, 0].tolist() == raw.test.labels.tolist()


def numbered(count):
    """Samples that say their own number."""
    numbers = np.arange(count)
    return Samples(numbers.astype(np.float32).reshape(-1, 1, 1, 1), numbers[:, np.newaxis])


@given(st.integers(1, 12), st.integers(0, 40), st.integers(1, 9))
@at_most(40)
def test_an_epoch_takes_whole_batches_in_an_order_of_its_own(batch, more, epoch):
    """No sample comes twice, images keep their labels, and what fills no batch is left out."""
    chosen = Settings(batch_size=batch, train_size=batch + more)
    batches = list(in_order(numbered(chosen.train_size), chosen, epoch))
    seen = [int(label) for each in batches for label in each.labels[:, 0]]

    assert [len(each.labels) for each in batches] == [batch] * (chosen.train_size // batch)
    assert len(set(seen)) == len(seen)
    assert all(np.array_equal(each.images[:, 0, 0, 0], each.labels[:, 0]) for each in batches)


def test_epochs_and_seeds_have_different_orders():
    """The order repeats for the same seed and epoch, and for no other."""

    def order(seed, epoch):
        chosen = replace(TINY, seed=seed)
        return tuple(int(x) for each in in_order(numbered(TINY.train_size), chosen, epoch) for x in each.labels[:, 0])

    assert order(3, 1) == order(3, 1)
    assert len({order(3, 1), order(3, 2), order(4, 1), order(1, 3)}) == 4


@given(st.integers(1, 30), st.integers(1, 12))
@at_most(40)
def test_every_sample_counts_once_in_an_evaluation(count, batch):
    """Batches are whole; what fills the last one up does not count."""
    batches = list(filled(numbered(count), batch))
    counted = [int(x) for samples, number in batches for x in samples.labels[:number, 0]]

    assert counted == list(range(count))
    assert {len(samples.labels) for samples, _ in batches} == {batch}


def test_a_picture_becomes_what_the_network_was_trained_on(tmp_path):
    """The bits of an exported sample are those of the data set; its negative and a coloured copy are the same digit."""
    pixels = load("synthetic-digits", train=0, test=1).test.images[0, :, :, 0]
    expected = scaled(pixels[np.newaxis, np.newaxis])
    colours = np.repeat(pixels[:, :, np.newaxis], 3, axis=2)

    assert np.array_equal(digits.read_picture(write_picture(tmp_path / "a.png", pixels)), expected)
    assert np.array_equal(digits.read_picture(write_picture(tmp_path / "b.png", 255 - pixels)), expected)
    assert np.array_equal(digits.read_picture(write_picture(tmp_path / "c.png", colours)), expected)


def test_a_picture_of_any_size_is_made_to_fit(tmp_path):
    """Every pixel four times in each direction is the picture itself."""
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    pixels[8:20, 12:16] = 255
    large = np.kron(pixels, np.ones((4, 4), np.uint8))

    image = digits.read_picture(write_picture(tmp_path / "large.png", large))

    assert image.shape == (1, 1, SIDE, SIDE)
    assert np.array_equal(image[0, 0, 10:18, 13:15], np.ones((8, 2), np.float32))
    assert image[0, 0, :6].max() == -1


WRONG_PICTURES = {
    "missing": (None, "does not exist; name a picture of one digit"),
    "no picture": (b"seven", "is not a readable picture; give a PNG, JPEG or BMP of one digit"),
    "empty": (b"", "is not a readable picture; give a PNG, JPEG or BMP of one digit"),
}


def postscript() -> bytes:
    """A picture in a format that Pillow would start Ghostscript for."""
    stream = io.BytesIO()
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(stream, "EPS")
    return stream.getvalue()


WRONG_PICTURES["PostScript"] = (postscript(), WRONG_PICTURES["empty"][1])


@pytest.mark.parametrize("case", WRONG_PICTURES)
def test_a_wrong_picture_is_refused_in_a_sentence(tmp_path, case):
    """The sentence names the file."""
    content, sentence = WRONG_PICTURES[case]
    path = tmp_path / "digit.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WorkloadError) as refused:
        digits.read_picture(path)

    assert str(refused.value) == f"--img {path} {sentence}"


def test_a_picture_that_was_cut_short_or_is_a_folder_is_refused(tmp_path):
    """What the operating system or the decoder says is passed on in one line."""
    whole = write_picture(tmp_path / "whole.png", np.arange(784, dtype=np.uint8).reshape(28, 28)).read_bytes()
    cut = tmp_path / "cut.png"
    cut.write_bytes(whole[: len(whole) // 2])

    for path in (cut, tmp_path):
        with pytest.raises(
            WorkloadError, match=r"^--img .* cannot be read \(.*\); give a PNG, JPEG or BMP of one digit$"
        ):
            digits.read_picture(path)


def test_a_picture_too_large_for_one_digit_is_refused(tmp_path, monkeypatch):
    """The limit is on pixels, which a small file can have many of."""
    monkeypatch.setattr(digits, "MOST_PIXELS", 100)
    path = write_picture(tmp_path / "wide.png", np.zeros((10, 11), np.uint8))

    with pytest.raises(WorkloadError, match=r"has 11 x 10 pixels; give a picture of one digit with at most 100$"):
        digits.read_picture(path)


def test_a_missing_model_is_named(tmp_path):
    """Each file that lacks is named, and the command that makes it."""
    with pytest.raises(WorkloadError) as refused:
        check_model(tmp_path)
    model_folder(tmp_path).mkdir()
    (model_folder(tmp_path) / MODEL_FILES[0]).touch()
    with pytest.raises(WorkloadError, match=rf"has no {MODEL_FILES[1]}; train first"):
        check_model(tmp_path)

    assert str(refused.value) == (
        f"{tmp_path}/model has no recognise_digits.pdmodel and no recognise_digits.pdiparams; train first with "
        f"`ipu-conformance train paddle-mnist --folder {tmp_path}`, or name another --folder"
    )


WHERE = {
    "native": ["--use_ipu", "False"],
    "one IPU": ["--use_ipu", "True", "--num_ipus", "1", "--no_pipelining", "--ipu-target", "emulator"],
    "replicated pipeline": ["--num_ipus", "4", "--replication-factor", "2", "--ipu-target", "emulator"],
}


@pytest.mark.skipif(not FRAMEWORKS["paddle"].installed, reason="needs paddle")
@pytest.mark.parametrize("where", WHERE)
def test_the_commands_train_and_recognise(where, tmp_path, after_paddle):
    """A run ends with the best pass, its files and the accuracy; a picture's digit is the last line of inference."""
    module = "ipu_conformance.workloads.paddle_mnist"
    start = run if where == "one IPU" else after_paddle
    sizes = ["--epochs", "1", "--train-size", "48", "--test-size", "9", "--batch-size", "16"]
    lines, _ = trained(*WHERE[where], *sizes, module=f"{module}.train", cwd=tmp_path, start=start)

    assert lines[0].startswith("Epoch 1, batch 3, Cost ")
    assert " Validation Cost " in lines[0]
    assert lines[-4].startswith("Best pass is 1, validation cost is ")
    assert lines[-3] == "Saved the inference model to paddle_mnist/model"
    assert lines[-2] == "Drew the loss curve to paddle_mnist/loss.png"
    assert lines[-1].startswith("Accuracy on test set: ")
    image = write_picture(tmp_path / "digit.png", load("synthetic-digits", train=0, test=1).test.images[0, :, :, 0])
    words = ["--use_ipu", "False"] if where == "native" else ["--ipu-target", "emulator"]
    recognised, _ = trained("--img", str(image), *words, module=f"{module}.infer", cwd=tmp_path, start=start)

    assert recognised[0] == "Drew the IR graph to paddle_mnist/ir_graph.dot"
    assert recognised[-1].startswith("Recognised digit: ")
    assert {path.name for path in (tmp_path / "paddle_mnist").iterdir()} >= {"model", "loss.png", "ir_graph.dot"}
