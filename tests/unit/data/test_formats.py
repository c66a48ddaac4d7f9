"""Every format gives the same arrays back that were written to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ipu_conformance import data
from ipu_conformance.data.formats.idx import idx_bytes
from ipu_conformance.data.formats.unpickle import load_plain
from tests.unit.examples import at_most

from . import files

MNIST, CIFAR = (28, 28), (32, 32, 3)


def mnist_writers():
    return {
        "idx": lambda folder, made: files.write_idx(folder, made, packed=False),
        "idx.gz": lambda folder, made: files.write_idx(folder / "MNIST" / "raw", made, packed=True),
        "keras": lambda folder, made: files.write_keras(folder / "mnist", made),
    }


def cifar_writers():
    def write(folder, name, content):
        files.write_files(folder, {name: content})

    return {
        "py2": lambda folder, made: files.write_files(folder / "cifar-10-batches-py", files.pickled_files(made)),
        "py3": lambda folder, made: files.write_files(
            folder / "cifar10", files.pickled_files(made, python2=False, protocol=4)
        ),
        "py3-protocol-2": lambda folder, made: files.write_files(
            folder / "cifar-10-batches-py", files.pickled_files(made, python2=False)
        ),
        "bin": lambda folder, made: files.write_files(folder / "cifar-10-batches-bin", files.binary_files(made)),
        "py.tar.gz": lambda folder, made: write(
            folder, "cifar-10-python.tar.gz", files.tar_gz(files.pickled_files(made))
        ),
        "bin.tar.gz": lambda folder, made: write(
            folder / "cifar10",
            "cifar-10-binary.tar.gz",
            files.tar_gz(files.binary_files(made), "cifar-10-batches-bin/"),
        ),
    }


@pytest.mark.parametrize(
    ("name", "form"),
    [*(("mnist", form) for form in mnist_writers()), *(("cifar10", form) for form in cifar_writers())],
)
def test_a_set_comes_back_as_it_was_written(folder, name, form):
    """Channels are last, one of them for digits; the five training batches of CIFAR-10 follow one another."""
    made = files.arrays(MNIST if name == "mnist" else CIFAR)
    (mnist_writers() if name == "mnist" else cifar_writers())[form](folder, made)

    loaded = data.load(name)

    for split in ("train", "test"):
        images, labels = made[split]
        assert np.array_equal(getattr(loaded, split).images, images[..., None] if name == "mnist" else images)
        assert np.array_equal(getattr(loaded, split).labels, labels)


def test_jpegs_are_cut_at_their_offsets_and_decoded(folder):
    """Each image is what Pillow makes of its own slice."""
    import io

    from PIL import Image

    made = files.arrays(CIFAR)
    for split, (images, labels) in made.items():
        files.write_jpeg_npz(folder / "cifar10" / f"{split}.npz", [files.jpeg(image) for image in images], labels)

    loaded = data.load("cifar10", train=9)

    expected = [np.asarray(Image.open(io.BytesIO(files.jpeg(image)))) for image in made["train"][0][:9]]
    assert np.array_equal(loaded.train.images, expected)
    assert np.array_equal(loaded.train.labels, made["train"][1][:9])
    assert len(loaded.test) == files.SIZES["test"]


@pytest.mark.parametrize("form", [*mnist_writers(), *cifar_writers()])
@pytest.mark.parametrize("count", [0, 1, 8, 35])
def test_a_smaller_set_is_the_beginning_of_the_larger(folder, form, count):
    """The first N samples are the same however many are asked for."""
    name = "mnist" if form in mnist_writers() else "cifar10"
    {**mnist_writers(), **cifar_writers()}[form](folder, files.arrays(MNIST if name == "mnist" else CIFAR))

    whole, part = data.load(name), data.load(name, train=count, test=0)

    assert len(part.train) == count
    assert len(part.test) == 0
    assert np.array_equal(part.train.images, whole.train.images[:count])
    assert np.array_equal(part.train.labels, whole.train.labels[:count])


def test_more_samples_than_there_are_is_refused(folder):
    """The sentence says how many there are."""
    files.write_idx(folder, files.arrays(MNIST), packed=True)

    with pytest.raises(data.DataError, match="has 35 train images of mnist and 36 were asked for"):
        data.load("mnist", train=36)


def test_loaded_arrays_are_read_only(folder):
    """One caller cannot change the samples of the next."""
    files.write_idx(folder, files.arrays(MNIST), packed=True)

    with pytest.raises(ValueError, match="read-only"):
        data.load("mnist").train.images[0] = 0


def test_a_file_that_changed_is_read_again(folder):
    """What is remembered belongs to the files as they were."""
    files.write_idx(folder, files.arrays(MNIST, seed=1), packed=False)
    before = data.load("mnist").train.images
    other = files.arrays(MNIST, seed=2)
    other = {split: (images[:-1], labels[:-1]) for split, (images, labels) in other.items()}
    files.write_idx(folder, other, packed=False)

    after = data.load("mnist").train.images

    assert len(before) == 35
    assert np.array_equal(after[..., 0], other["train"][0])


@given(npst.arrays(np.uint8, npst.array_shapes(min_dims=1, max_dims=3, max_side=9)))
@at_most(50)
def test_idx_bytes_are_what_the_format_says(array):
    """The writer agrees with one written from the format's description."""
    assert idx_bytes(array) == files.idx_file(array)


@given(
    npst.arrays(st.sampled_from([np.uint8, np.float32, np.int64]), npst.array_shapes(max_dims=2, max_side=5)),
    st.sampled_from([2, 3, 4]),
    st.booleans(),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_the_restricted_unpickler_reads_arrays_of_numbers(array, protocol, fortran):
    """An array comes back with its dtype, shape and bits, also from Fortran order."""
    import pickle

    array = np.asfortranarray(array) if fortran else array

    read = load_plain(pickle.dumps({"data": array}, protocol))["data"]

    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())
