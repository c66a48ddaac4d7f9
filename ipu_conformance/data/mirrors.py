"""The public mirrors that are known to serve the original files, and the SHA-256 that each file has there."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Tuple


class RemoteFile(NamedTuple):
    """A file at a mirror: its name, its length in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str


class Mirrored(NamedTuple):
    """A data set at its mirrors: every mirror is an address that a file's name is appended to."""

    mirrors: Tuple[str, ...]
    files: Tuple[RemoteFile, ...]


KERAS_MNIST = Mirrored(
    ("https://storage.googleapis.com/tensorflow/tf-keras-datasets/",),
    (RemoteFile("mnist.npz", 11_490_434, "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"),),
)
"""MNIST in the one file that Keras accepts."""

MIRRORED: Mapping[str, Mirrored] = {
    "mnist": Mirrored(
        (
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ),
        (
            RemoteFile(
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            RemoteFile(
                "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            RemoteFile(
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            RemoteFile(
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
    "cifar10": Mirrored(
        ("https://www.cs.toronto.edu/~kriz/",),
        (
            RemoteFile(
                "cifar-10-python.tar.gz",
                170_498_071,
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            ),
        ),
    ),
}
