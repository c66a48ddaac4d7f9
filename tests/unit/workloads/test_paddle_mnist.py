"""The Paddle digits workload's settings, data and files."""

import argparse
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_conformance.data import load
from ipu_conformance.data.places import DATA_VARIABLE
from ipu_conformance.workloads import WorkloadError, paddle_mnist
from ipu_conformance.workloads.folders import make_folder
from ipu_conformance.workloads.paddle_mnist import Settings, curve, picture
from ipu_conformance.workloads.paddle_mnist.batches import SIDE, Samples, datasets, filled, in_order, scaled
from ipu_conformance.workloads.paddle_mnist.places import CURVE, MODEL_FILES, check_model, model_folder
from ipu_conformance.workloads.paddle_mnist.reference import ACCURACY
from ipu_conformance.workloads.paddle_mnist.settings import PIPELINED_ACCUMULATION

from .pictures import write_picture

TINY = Settings(epochs=2, train_size=40, test_size=11, batch_size=6)

REFUSED = {
    "epochs": ({"epochs": 0}, "--epochs is 0; give 1 or more"),
    "batch": ({"batch_size": -1}, "--batch-size is -1; give 1 or more"),
    "tests": ({"test_size": 0}, "--test-size is 0; give 1 or more"),
    "ipus": ({"num_ipus": 0}, "--num_ipus is 0; give 1 or more"),
    "replicas": ({"replication_factor": 0}, "--replication-factor is 0; give 1 or more"),
    "rate": ({"learning_rate": 0.0}, "--lr is 0.0; give a positive number"),
    "no rate": ({"learning_rate": float("nan")}, "--lr is nan; give a positive number"),
    "seed": ({"seed": -1}, "--seed is -1; give a number from 0 to 2**31 - 2"),
    "large seed": ({"seed": 2**31 - 1}, "--seed is 2147483647; give a number from 0 to 2**31 - 2"),
    "few samples": (
        {"train_size": 63},
        "--train-size is 63, and one update takes 64 samples; give at least as many",
    ),
    "replicas that do not divide": (
        {"num_ipus": 4, "replication_factor": 3},
        "--replication-factor is 3, which does not divide the 4 IPUs of --num_ipus; give every replica the same number "
        "of IPUs",
    ),
    "too many stages": (
        {"num_ipus": 8, "replication_factor": 2},
        "--num_ipus is 8, which gives each of 2 replicas 4 IPUs, and the network is cut for at most 2; use fewer IPUs "
        "or more replicas",
    ),
    "odd batch": (
        {"num_ipus": 4, "replication_factor": 2, "batch_size": 36},
        "--batch-size is 36, which 2 replicas with 4 micro-batches each cannot share equally; give a multiple of 8",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_work_are_refused_in_a_sentence(case):
    """The sentence says what was given, what is allowed and what to do."""
    given_values, sentence = REFUSED[case]
    with pytest.raises(WorkloadError) as refused:
        Settings(**given_values)

    assert str(refused.value) == sentence


@given(st.integers(1, 6), st.integers(1, 2), st.booleans(), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_the_micro_batches_of_all_replicas_are_one_batch(replicas, stages, pipelining, multiple):
    """However the IPUs are used, an update sees the same number of samples."""
    batch = multiple * replicas * PIPELINED_ACCUMULATION
    chosen = Settings(num_ipus=replicas * stages, replication_factor=replicas, pipelining=pipelining, batch_size=batch)

    assert chosen.micro_batch * chosen.accumulation * chosen.replication_factor == batch
    assert chosen.stages * chosen.replication_factor == chosen.num_ipus
    assert chosen.pipelined == (pipelining and stages == 2)
    # Two stages of training have this many micro-batches under way at once.
    assert chosen.accumulation >= (2 * (chosen.stages - 1) + 1 if chosen.pipelined else 1)


def options(*words):
    """The settings that a command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--native", action="store_true")
    paddle_mnist.configure(parser)
    args = parser.parse_args(words)
    return paddle_mnist.settings_of(args), args


def test_the_published_figures_are_the_defaults(monkeypatch):
    """Batches of 64, learning rate 0.001, 4 epochs of all of MNIST, one IPU."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    chosen, args = options("--data", "mnist")

    assert (chosen.batch_size, chosen.learning_rate, chosen.epochs) == (64, 1e-3, 4)
    assert (chosen.train_size, chosen.test_size) == (60_000, 10_000)
    assert (chosen.num_ipus, chosen.replication_factor, chosen.seed) == (1, 1, 0)
    assert not args.native
    assert options()[0] == ACCURACY.settings


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
    assert options(*words)[1].native is native


def test_flags_may_be_written_with_either_stroke():
    """Both spellings of the options that are named with underscores are known."""
    words = ["--num_ipus", "4", "--replication_factor", "2", "--no_pipelining"]

    assert options(*words)[0] == options(*[word.replace("_", "-") for word in words])[0]
    assert options(*words)[0] == Settings(num_ipus=4, replication_factor=2, pipelining=False)


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
@settings(max_examples=40, deadline=None)
def test_an_epoch_takes_whole_batches_in_an_order_of_its_own(batch, more, epoch):
    """No sample comes twice, images keep their labels, and what fills no batch is left out."""
    chosen = Settings(batch_size=batch, train_size=batch + more)
    made = list(in_order(numbered(chosen.train_size), chosen, epoch))
    seen = [int(label) for each in made for label in each.labels[:, 0]]

    assert [len(each.labels) for each in made] == [batch] * (chosen.train_size // batch)
    assert len(set(seen)) == len(seen)
    assert all(np.array_equal(each.images[:, 0, 0, 0], each.labels[:, 0]) for each in made)


def test_epochs_and_seeds_have_different_orders():
    """The order repeats for the same seed and epoch, and for no other."""

    def order(seed, epoch):
        chosen = replace(TINY, seed=seed)
        return tuple(int(x) for each in in_order(numbered(TINY.train_size), chosen, epoch) for x in each.labels[:, 0])

    assert order(3, 1) == order(3, 1)
    assert len({order(3, 1), order(3, 2), order(4, 1), order(1, 3)}) == 4


@given(st.integers(1, 30), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_every_sample_counts_once_in_an_evaluation(count, batch):
    """Batches are whole; what fills the last one up does not count."""
    made = list(filled(numbered(count), batch))
    counted = [int(x) for own, number in made for x in own.labels[:number, 0]]

    assert counted == list(range(count))
    assert {len(own.labels) for own, _ in made} == {batch}


def test_a_picture_becomes_what_the_network_was_trained_on(tmp_path):
    """The bits of an exported sample are those of the data set; its negative and a coloured copy are the same digit."""
    pixels = load("synthetic-digits", train=0, test=1).test.images[0, :, :, 0]
    expected = scaled(pixels[np.newaxis, np.newaxis])
    colours = np.repeat(pixels[:, :, np.newaxis], 3, axis=2)

    assert np.array_equal(picture.read(write_picture(tmp_path / "a.png", pixels)), expected)
    assert np.array_equal(picture.read(write_picture(tmp_path / "b.png", 255 - pixels)), expected)
    assert np.array_equal(picture.read(write_picture(tmp_path / "c.png", colours)), expected)


def test_a_picture_of_any_size_is_made_to_fit(tmp_path):
    """Every pixel four times in each direction is the picture itself."""
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    pixels[8:20, 12:16] = 255
    large = np.kron(pixels, np.ones((4, 4), np.uint8))

    found = picture.read(write_picture(tmp_path / "large.png", large))

    assert found.shape == (1, 1, SIDE, SIDE)
    assert np.array_equal(found[0, 0, 10:18, 13:15], np.ones((8, 2), np.float32))
    assert found[0, 0, :6].max() == -1


WRONG_PICTURES = {
    "missing": (None, "does not exist; name a picture of one digit"),
    "no picture": (b"seven", "is no picture that can be read; give a PNG or JPEG of one digit"),
    "empty": (b"", "is no picture that can be read; give a PNG or JPEG of one digit"),
}


@pytest.mark.parametrize("case", WRONG_PICTURES)
def test_a_wrong_picture_is_refused_in_a_sentence(tmp_path, case):
    """The sentence names the file."""
    content, sentence = WRONG_PICTURES[case]
    path = tmp_path / "digit.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WorkloadError) as refused:
        picture.read(path)

    assert str(refused.value) == f"--img {path} {sentence}"


def test_a_picture_that_was_cut_short_or_is_a_folder_is_refused(tmp_path):
    """What the operating system or the decoder says is passed on in one line."""
    whole = write_picture(tmp_path / "whole.png", np.arange(784, dtype=np.uint8).reshape(28, 28)).read_bytes()
    cut = tmp_path / "cut.png"
    cut.write_bytes(whole[: len(whole) // 2])

    for path in (cut, tmp_path):
        with pytest.raises(WorkloadError, match=r"^--img .* cannot be read \(.*\); give a PNG or JPEG of one digit$"):
            picture.read(path)


def test_a_picture_too_large_for_one_digit_is_refused(tmp_path, monkeypatch):
    """The limit is on pixels, which a small file can have many of."""
    monkeypatch.setattr(picture, "MOST_PIXELS", 100)
    path = write_picture(tmp_path / "wide.png", np.zeros((10, 11), np.uint8))

    with pytest.raises(WorkloadError, match=r"has 11 x 10 pixels; give a picture of one digit with at most 100$"):
        picture.read(path)


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


def test_a_folder_that_cannot_be_made_is_refused_before_training(tmp_path):
    """A file stands where the folder should be."""
    (tmp_path / "file").touch()

    with pytest.raises(WorkloadError, match=r"cannot be made \(.*\); name another$"):
        make_folder(tmp_path / "file" / "below")


def test_the_loss_curve_is_written_whole(tmp_path):
    """A PNG with both curves; no other file is left."""
    from PIL import Image

    curve.draw([2.0, 1.0, 0.5], [2, 3], [0.9, 0.6], "title", tmp_path / CURVE)

    assert [path.name for path in tmp_path.iterdir()] == [CURVE]
    with Image.open(tmp_path / CURVE) as drawn:
        assert drawn.format == "PNG"
        assert len(drawn.convert("L").getcolors(1 << 16)) > 2
    with pytest.raises(WorkloadError, match="the loss curve cannot be written to"):
        curve.draw([1.0], [1], [1.0], "title", tmp_path / "nowhere" / CURVE)
