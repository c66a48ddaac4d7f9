"""Data sets are found in a documented order; what the user names is never passed over in silence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ipu_conformance import data
from ipu_conformance.data.listing import rows

from . import files

PLACES = (
    ("IPU_CONFORMANCE_DATA", "named", "$IPU_CONFORMANCE_DATA"),
    ("KERAS_HOME", "keras", "Keras cache"),
    ("", "work/data", "torchvision ./data"),
    ("TORCH_HOME", "torch", "torchvision cache"),
    ("", "home/.cache/paddle/dataset", "Paddle cache"),
    ("IPU_CONFORMANCE_CACHE", "own", "own cache"),
)


def place(tmp_path, monkeypatch, number: int) -> Path:
    """The folder of a place, with the variable set that names it."""
    variable, where, _ = PLACES[number]
    folder = tmp_path / where
    folder.mkdir(parents=True, exist_ok=True)
    if variable:
        monkeypatch.setenv(variable, str(folder))
    return folder / "datasets" if variable in ("KERAS_HOME", "TORCH_HOME") else folder


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_earlier_places_come_first(tmp_path, monkeypatch, number):
    """With MNIST in this place and all later ones, this one is read."""
    for later in range(number, len(PLACES)):
        folder = place(tmp_path, monkeypatch, later)
        files.write_idx(folder / "mnist", files.arrays((28, 28), seed=later), packed=True)

    location = data.locate("mnist")

    assert location.origin == PLACES[number][2]
    assert np.array_equal(data.load("mnist").train.labels, files.arrays((28, 28), seed=number)["train"][1])


@pytest.mark.parametrize(
    ("where", "write"),
    [
        ("home/.keras/datasets", lambda path: files.write_keras(path, files.arrays((28, 28)))),
        ("work/data/MNIST/raw", lambda path: files.write_idx(path, files.arrays((28, 28)), packed=False)),
        (
            "home/.cache/torch/datasets/MNIST/raw",
            lambda path: files.write_idx(path, files.arrays((28, 28)), packed=True),
        ),
        ("home/.cache/paddle/dataset/mnist", lambda path: files.write_idx(path, files.arrays((28, 28)), packed=True)),
    ],
)
def test_the_caches_of_other_programs_are_found(tmp_path, where, write):
    """Keras', torchvision's and Paddle's own layouts are read where those programs leave them."""
    write(tmp_path / where)

    assert len(data.load("mnist").train) == files.SIZES["train"]


@pytest.mark.parametrize(
    ("where", "archive"),
    [
        ("home/.keras/datasets/cifar-10-batches-py", None),
        ("home/.keras/datasets/cifar-10-batches-py-target/cifar-10-batches-py", None),
        ("home/.keras/datasets", "cifar-10-batches-py.tar.gz"),
        ("work/data/cifar-10-batches-py", None),
        ("home/.cache/paddle/dataset/cifar", "cifar-10-python.tar.gz"),
    ],
)
def test_cifar_in_the_caches_of_other_programs_is_found(tmp_path, where, archive):
    """Unpacked folders and archives are found under the names that the programs give them."""
    batches = files.pickled_files(files.arrays((32, 32, 3)))
    files.write_files(tmp_path / where, batches if archive is None else {archive: files.tar_gz(batches)})

    assert len(data.load("cifar10").train) == files.SIZES["train"]


@pytest.mark.parametrize("value", ["", "/no/such/folder", "a-file"])
def test_a_variable_that_names_no_folder_is_an_error(monkeypatch, value):
    """Also for a set that another place has."""
    Path("a-file").write_text("")
    files.write_idx(Path("data"), files.arrays((28, 28)), packed=True)
    monkeypatch.setenv("IPU_CONFORMANCE_DATA", value)

    with pytest.raises(data.DataError, match=f"IPU_CONFORMANCE_DATA is '{value}', which is not a folder"):
        data.load("mnist")


def test_an_incomplete_set_that_the_user_named_is_an_error(folder):
    """The complete one in a cache is not taken in its place."""
    files.write_idx(Path("data"), files.arrays((28, 28)), packed=True)
    files.write_idx(folder, files.arrays((28, 28)), packed=True)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()

    with pytest.raises(data.DataError, match="has mnist without t10k-labels-idx1-ubyte"):
        data.load("mnist")
    assert "mnist" not in data.available()


def test_a_damaged_set_that_the_user_named_is_an_error(folder):
    """The sound one in a cache is not taken in its place."""
    files.write_idx(Path("data"), files.arrays((28, 28)), packed=True)
    files.write_idx(folder, files.arrays((28, 28)), packed=True)
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")

    with pytest.raises(data.DataError, match=r"data.t10k-labels-idx1-ubyte\.gz ends within its header"):
        data.load("mnist")


def test_a_set_that_the_named_folder_lacks_is_looked_for_further(folder):
    """A folder with CIFAR-10 alone does not hide MNIST in a cache."""
    files.write_idx(Path("data"), files.arrays((28, 28)), packed=True)
    files.write_files(folder / "cifar-10-batches-bin", files.binary_files(files.arrays((32, 32, 3))))

    assert data.locate("mnist").origin == "torchvision ./data"
    assert data.locate("cifar10").origin == "$IPU_CONFORMANCE_DATA"


def test_an_incomplete_set_in_a_cache_is_passed_over(tmp_path, monkeypatch):
    """A half-finished download of another program does not hide a complete set."""
    files.write_idx(tmp_path / "home/.cache/paddle/dataset/mnist", files.arrays((28, 28)), packed=True)
    files.write_idx(Path("data"), files.arrays((28, 28)), packed=True)
    Path("data/train-images-idx3-ubyte.gz").unlink()

    assert data.locate("mnist").origin == "Paddle cache"


def test_a_set_that_is_nowhere_is_an_error_that_says_what_to_do():
    """The sentence names the command and the variable."""
    with pytest.raises(data.DataError, match="run `ipu-conformance data fetch cifar10` or set IPU_CONFORMANCE_DATA"):
        data.load("cifar10")
    assert data.available() == ("synthetic-digits", "synthetic-cifar")


def test_an_unknown_name_is_refused_with_the_known_ones():
    """The sentence lists what there is."""
    with pytest.raises(data.DataError, match="no data set 'fashion'; choose one of mnist, cifar10, synthetic-digits"):
        data.load("fashion")


@pytest.mark.parametrize("name", data.KINDS)
def test_a_negative_size_is_refused(name):
    """Zero is the least."""
    with pytest.raises(data.DataError, match="train is -1"):
        data.load(name, train=-1)


def test_the_list_counts_images_by_their_headers(folder):
    """Every format whose headers tell is counted, and nothing is read whole."""
    made = files.arrays((32, 32, 3))
    files.write_files(folder / "cifar-10-batches-bin", files.binary_files(made))
    files.write_keras(folder, files.arrays((28, 28)))

    mnist, cifar, digits, _ = rows()

    assert (mnist.images, mnist.format, mnist.ready) == ((35, 7), "keras npz", True)
    assert (cifar.images, cifar.format, cifar.size) == ((35, 7), "batches-bin", 42 * 3073)
    assert (digits.ready, digits.place) == (True, "made on the spot")


def test_the_list_shows_damage_as_a_state(folder):
    """One damaged set does not hide the others."""
    files.write_idx(folder, files.arrays((28, 28)), packed=False)
    (folder / "train-images-idx3-ubyte").write_bytes(b"oops")
    files.write_files(folder / "cifar-10-batches-py", {"test_batch": b""})

    mnist, cifar, *_ = rows()

    assert (mnist.ready, mnist.state.split(":")[0]) == (False, "damaged")
    assert (cifar.ready, cifar.state) == (
        False,
        "incomplete; lacks data_batch_1, data_batch_2, data_batch_3, data_batch_4, data_batch_5",
    )
