"""Verification compares what was read with the originals' digests, and says what it cannot compare."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from ipu_conformance.data import KINDS, DataError, originals
from ipu_conformance.data.originals import DIFFERS, EXACT, REENCODED, UNREADABLE, found_names, verify, verify_or_refuse

from . import files

MNIST, CIFAR = files.arrays((28, 28)), files.arrays((32, 32, 3))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def small_originals(monkeypatch):
    """The digests of a small MNIST, in place of the real one's."""
    digests = dict(originals.DIGESTS)
    for split, pair in MNIST.items():
        digests.update({name: digest(files.idx_file(array)) for name, array in zip(files.IDX[split], pair)})
    monkeypatch.setattr(originals, "DIGESTS", digests)


@pytest.mark.parametrize("write", [files.write_keras, lambda path, made: files.write_idx(path, made, packed=True)])
def test_the_original_is_bit_exact_in_every_format(folder, small_originals, write):
    """The digests are of the unpacked idx files, whatever the images were read from."""
    write(folder, MNIST)

    result = verify("mnist")

    assert (result.state, [part.same for part in result.parts]) == (EXACT, [True] * 4)


@pytest.mark.parametrize(("split", "which"), [("train", 0), ("train", 1), ("test", 0), ("test", 1)])
def test_one_changed_byte_differs(folder, small_originals, split, which):
    """The part that the byte belongs to is named, and no other."""
    made = {name: (images.copy(), labels.copy()) for name, (images, labels) in MNIST.items()}
    made[split][which].flat[-1] = (made[split][which].flat[-1] + 1) % 10
    files.write_idx(folder, made, packed=False)

    result = verify("mnist")

    assert result.state == DIFFERS
    assert [part.name for part in result.parts if not part.same] == [files.IDX[split][which]]


@pytest.mark.parametrize("form", ["bin", "py"])
def test_cifar_is_compared_as_binary_batches(folder, monkeypatch, form):
    """Both original formats have the digests of the binary version's files."""
    monkeypatch.setattr("ipu_conformance.data.formats.cifar._BATCH", 7)
    files.write_files(
        folder / f"cifar-10-batches-{form}", files.binary_files(CIFAR) if form == "bin" else files.pickled_files(CIFAR)
    )
    digests = {name[:-4]: digest(content) for name, content in files.binary_files(CIFAR).items()}
    monkeypatch.setattr(originals, "DIGESTS", digests)

    result = verify("cifar10")

    assert (result.state, len(result.parts)) == (EXACT, 6)


def test_a_short_cifar_differs(folder):
    """Batches that are missing are not silently left out of the comparison."""
    files.write_files(folder / "cifar-10-batches-bin", files.binary_files(CIFAR))

    result = verify("cifar10")

    assert result.state == DIFFERS
    assert [part.same for part in result.parts] == [False] * 6


def test_reencoded_images_are_said_to_be_so(folder, monkeypatch):
    """JPEG is never called bit-exact; complete classes make it re-encoded, incomplete ones different."""
    monkeypatch.setitem(KINDS, "cifar10", type(KINDS["cifar10"])("cifar10", (32, 32, 3), 20, 10, synthetic=False))
    labels = {"train": np.repeat(np.arange(10, dtype=np.uint8), 2), "test": np.arange(10, dtype=np.uint8)}
    for split, numbers in labels.items():
        pictures = [files.jpeg(CIFAR["train"][0][number]) for number in range(len(numbers))]
        files.write_jpeg_npz(folder / f"{split}.npz", pictures, numbers)

    whole = verify("cifar10")
    files.write_jpeg_npz(folder / "test.npz", pictures, labels["test"] // 2)
    damaged = verify("cifar10")

    assert (whole.state, damaged.state) == (REENCODED, DIFFERS)
    assert digest(labels["train"].tobytes()) in whole.facts[0]


def test_a_set_that_cannot_be_read_is_a_result(folder):
    """The reason is its fact; an unknown name is still an error."""
    (folder / "mnist.npz").write_bytes(b"")

    result = verify_or_refuse("mnist")

    assert (result.state, "cannot be read" in result.facts[0]) == (UNREADABLE, True)
    assert found_names() == ("mnist", "synthetic-digits", "synthetic-cifar")
    with pytest.raises(DataError, match="no data set 'minst'"):
        verify_or_refuse("minst")
