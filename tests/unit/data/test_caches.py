"""The caches of Keras and torchvision are filled from what was fetched, and their loaders find it."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from ipu_conformance.cli import main
from ipu_conformance.data import DataError, caches, loaders
from ipu_conformance.data.dataset import SPLITS
from ipu_conformance.data.download import sha256_of
from ipu_conformance.data.fetch import fetch
from ipu_conformance.data.mirrors import MIRRORED, Mirrored, RemoteFile
from ipu_conformance.data.places import find, keras_folder, torch_folder

from . import files

MNIST = files.arrays((28, 28))
RAW = {name: files.idx_file(array) for split in SPLITS for name, array in zip(files.IDX[split], MNIST[split])}


@pytest.fixture
def mnist(folder):
    """A small MNIST in the folder of the user."""
    files.write_idx(folder, MNIST, packed=True)
    return find("mnist")


def contents(folder: Path):
    """The bytes of every file below a folder, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_mnist_is_where_both_libraries_look(mnist):
    """Keras gets one npz of four arrays, torchvision four unpacked files below MNIST/raw, and nothing else is left."""
    said = []
    caches.fill(mnist, said.append, keras=None)

    with np.load(keras_folder() / "mnist.npz") as arrays:
        for split in SPLITS:
            np.testing.assert_array_equal(arrays[f"x_{split}"], MNIST[split][0])
            np.testing.assert_array_equal(arrays[f"y_{split}"], MNIST[split][1])
    assert [path.name for path in keras_folder().iterdir()] == ["mnist.npz"]
    assert contents(torch_folder()) == {os.path.join("MNIST", "raw", name): data for name, data in RAW.items()}
    assert len(said) == 2


def test_what_is_there_is_left_alone(mnist):
    """A second time nothing is written, whatever the files hold."""
    caches.fill(mnist, lambda sentence: None, keras=None)
    (keras_folder() / "mnist.npz").write_bytes(b"the user's own")

    assert caches.fill(mnist, lambda sentence: None, keras=None) == []
    assert (keras_folder() / "mnist.npz").read_bytes() == b"the user's own"


def test_keras_own_file_is_preferred(mnist, monkeypatch):
    """Where the mirror answers, Keras has the file whose digest it knows."""
    own = RemoteFile("mnist.npz", 3, "unused")
    monkeypatch.setattr(caches, "download", lambda mirror, file, folder: (folder / file.name).write_bytes(b"own"))

    caches.fill(mnist, lambda sentence: None, keras=Mirrored(("https://mirror/",), (own,)))

    assert (keras_folder() / "mnist.npz").read_bytes() == b"own"


def test_a_failed_write_leaves_nothing(mnist, monkeypatch):
    """A full disk is one sentence, and no half of a file."""

    def full(stream, **arrays):
        stream.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(DataError, match=r"cannot be written to \(no space left on device\)") as caught:
        caches.fill(mnist, lambda sentence: None, keras=None)

    assert "\n" not in str(caught.value)
    assert list(keras_folder().iterdir()) == []


@pytest.fixture
def archive(folder, monkeypatch):
    """A small CIFAR-10 archive in the folder of the user, which counts as the original."""
    path = folder / "cifar-10-python.tar.gz"
    path.write_bytes(files.tar_gz(files.pickled_files(files.arrays((32, 32, 3)))))
    original = Mirrored((), (RemoteFile(path.name, path.stat().st_size, sha256_of(path)),))
    monkeypatch.setitem(MIRRORED, "cifar10", original)
    return path


def test_cifar10_is_given_as_the_archive(archive):
    """Each library has the archive under the name by which it looks for it."""
    caches.fill(find("cifar10"), lambda sentence: None)

    assert contents(keras_folder()) == {"cifar-10-batches-py.tar.gz": archive.read_bytes()}
    assert contents(torch_folder()) == {"cifar-10-python.tar.gz": archive.read_bytes()}


def test_another_archive_is_not_given(folder):
    """Pictures that are not the original's give one sentence and no file: both libraries would refuse them."""
    (folder / "cifar-10-python.tar.gz").write_bytes(files.tar_gz(files.pickled_files(files.arrays((32, 32, 3)))))
    said = []

    assert caches.fill(find("cifar10"), said.append) == []
    assert "original archive only" in said[0]
    assert not keras_folder().exists()


def test_a_fetch_takes_what_the_user_has(mnist, monkeypatch, capsys):
    """The command asks no mirror for a set of the user's folder, and fills the caches from it."""

    def unreachable(*arguments):
        raise DataError("no network")

    monkeypatch.setattr(caches, "download", unreachable)
    assert fetch("mnist", mirrored={}) == mnist.folder
    assert main(["data", "fetch", "mnist"]) == 0

    assert "nothing was downloaded" in capsys.readouterr().err
    assert (keras_folder() / "mnist.npz").exists()
    assert set(os.listdir(torch_folder() / "MNIST" / "raw")) == set(RAW)


def test_a_fetch_can_leave_the_caches_alone(mnist):
    """--no-caches writes nothing there."""
    assert main(["data", "fetch", "mnist", "--no-caches"]) == 0

    assert not keras_folder().exists()
    assert not torch_folder().exists()


def keras_module(name):
    """A stand-in for ``keras.src.datasets.<name>``, whose loader would ask a network."""
    backend = types.SimpleNamespace(image_data_format=lambda: "channels_first")
    module = types.SimpleNamespace(
        __name__=f"keras.src.datasets.{name}", load_data=lambda path="here": "from the network", backend=backend
    )
    loaders.change_keras(module)
    loaders.change_keras(module)  # a second time changes nothing
    return module


def test_keras_loads_what_was_found(mnist):
    """``load_data`` gives arrays of Keras' shapes and types that can be written to."""
    for (images, labels), split in zip(keras_module("mnist").load_data(), SPLITS):
        np.testing.assert_array_equal(images, MNIST[split][0])
        np.testing.assert_array_equal(labels, MNIST[split][1])
        assert images.flags.writeable
        assert labels.dtype == np.uint8


def test_keras_loads_pictures_in_its_own_layout(archive):
    """Labels of CIFAR-10 are a column, and channels are where Keras is told to have them."""
    (images, labels), _ = keras_module("cifar10").load_data()

    assert images.shape[1:] == (3, 32, 32)
    assert labels.shape == (len(images), 1)


def test_keras_asks_its_network_where_nothing_was_found():
    """Without data the loader is Keras' own."""
    assert keras_module("mnist").load_data("there") == "from the network"


TORCHVISION = """
class MNIST:
    def __init__(self, root, download=False):
        self.root = root
        if download:
            self.download()

    def _check_exists(self):
        import os
        return os.path.exists(os.path.join(self.root, "MNIST", "raw", "t10k-labels-idx1-ubyte"))

    def download(self):
        if not self._check_exists():
            raise RuntimeError("asked the network")


class FashionMNIST(MNIST):
    pass
"""
PROGRAM = """
import sys
from torchvision.datasets.mnist import MNIST, FashionMNIST
MNIST(sys.argv[1], download=True)
try:
    FashionMNIST(sys.argv[1] + "-fashion", download=True)
except RuntimeError as error:
    print(error)
"""


def test_torchvision_finds_the_data_under_emulate(mnist, folder, tmp_path):
    """A program that downloads MNIST to a folder of its own gets the files there, and asks no network."""
    package = tmp_path / "site" / "torchvision" / "datasets"
    package.mkdir(parents=True)
    for path, text in (
        (package.parent / "__init__.py", ""),
        (package / "__init__.py", ""),
        (package / "mnist.py", TORCHVISION),
    ):
        path.write_text(text)
    root = Path(caches.__file__).parents[2]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package.parents[1]), str(root)])}
    command = [sys.executable, "-m", "ipu_conformance", "emulate", "-", str(tmp_path / "root")]
    ended = subprocess.run(command, input=PROGRAM, env=variables, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (0, "asked the network\n"), ended.stderr
    assert contents(tmp_path / "root") == {os.path.join("MNIST", "raw", name): data for name, data in RAW.items()}


def test_the_archive_of_cifar10_is_put_where_torchvision_looks(archive, tmp_path):
    """``CIFAR10.download`` finds the original archive in its folder and has nothing to fetch."""

    class CIFAR10:
        filename = "cifar-10-python.tar.gz"

        def __init__(self, root):
            self.root = root

        def _check_integrity(self):
            return False

        def download(self):
            assert (Path(self.root) / self.filename).read_bytes() == archive.read_bytes()

    module = types.SimpleNamespace(CIFAR10=CIFAR10)
    loaders.change_torch_cifar10(module)

    CIFAR10(str(tmp_path / "root")).download()
    assert MIRRORED["cifar10"].files[0].sha256 == sha256_of(archive)
