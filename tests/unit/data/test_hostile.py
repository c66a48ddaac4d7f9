"""A damaged or hostile file is refused with one sentence; no code of it runs and nothing of it reaches the disk."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
import struct
import tarfile
import zipfile
from typing import Any, Dict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.data import DataError, load
from ipu_conformance.data.dataset import kind_of
from ipu_conformance.data.formats.cifar import read_folder_split, read_tar_split
from ipu_conformance.data.formats.idx import read_idx_split
from ipu_conformance.data.formats.npz import read_jpeg_split, read_keras_split
from tests.unit.examples import at_most

from . import files

MNIST, CIFAR = files.arrays((28, 28)), files.arrays((32, 32, 3))


def assert_says(sentence: str, pattern: str) -> None:
    """The sentence matches the pattern somewhere."""
    assert re.search(pattern, sentence), sentence


def refused(name: str) -> str:
    """The sentence with which loading ``name`` is refused."""
    with pytest.raises(DataError) as caught:
        load(name)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def header(*values: int, dtype: int = 8) -> bytes:
    return bytes((0, 0, dtype, len(values))) + struct.pack(f">{len(values)}I", *values)


IDX_IMAGES = {
    "truncated": (files.idx_file(MNIST["train"][0])[:-1], "27,439 bytes follow the header, which announces 27,440"),
    "too long": (files.idx_file(MNIST["train"][0]) + b"\0", "27,441 bytes follow the header"),
    "cut in the header": (header(35, 28, 28)[:9], "ends within its header"),
    "empty": (b"", "ends within its header"),
    "text": (b"<html>404 not found</html>", "does not begin like an idx3 file"),
    "labels for images": (files.idx_file(MNIST["train"][1]) + bytes(16), "does not begin like an idx3 file"),
    "floats": (header(35, 28, 28, dtype=0x0D) + bytes(35 * 784 * 4), "idx type 0x0d and not unsigned bytes"),
    "wrong shape": (files.idx_file(np.zeros((35, 32, 32), np.uint8)), "images of 32 x 32 and mnist has 28 x 28"),
    "huge header": (header(2**32 - 1, 28, 28), "holds 4,294,967,295 train images and mnist has 1 to 60,000"),
    "huge image": (header(35, 2**32 - 1, 2**32 - 1), "images of 4294967295 x 4294967295"),
    "no images": (header(0, 28, 28), "holds 0 train images"),
    "fewer images than labels": (files.idx_file(MNIST["train"][0][:34]), "34 images and .* 35 labels"),
    "truncated gzip": (gzip.compress(files.idx_file(MNIST["train"][0]))[:-20], "cannot be read as an idx3 file"),
    "gzip with a wrong CRC": (
        gzip.compress(files.idx_file(MNIST["train"][0]))[:-8] + bytes(8),
        "cannot be read as an idx3 file",
    ),
    "gzip bomb": (
        gzip.compress(header(60_000, 28, 28)) + gzip.compress(bytes(1 << 20)) * 46,
        "unpacks to more than 47,040,016 bytes",
    ),
}


@pytest.mark.parametrize("case", IDX_IMAGES)
def test_bad_idx_images_are_refused(folder, case):
    """Truncated, corrupt, misshapen, mistyped or boundless image files are refused."""
    content, sentence = IDX_IMAGES[case]
    files.write_idx(folder, MNIST, packed=False)
    (folder / "train-images-idx3-ubyte").write_bytes(content)

    assert_says(refused("mnist"), sentence)


def test_a_label_of_ten_is_refused(folder):
    """Labels are 0 to 9."""
    images, labels = MNIST["train"]
    files.write_idx(folder, {**MNIST, "train": (images, labels + 1)}, packed=True)

    assert_says(refused("mnist"), "a label 10 and mnist has 0 to 9")


class Bomb:
    """Creates a file when it is unpickled by the ordinary means."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))


def npy(array: np.ndarray, **options: bool) -> bytes:
    raw = io.BytesIO()
    np.lib.format.write_array(raw, array, **options)
    return raw.getvalue()


def npy_claiming(shape: str, dtype: str = "'|u1'") -> bytes:
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def keras(**changes: bytes) -> bytes:
    named = {f"{letter}_{split}": array for split, pair in MNIST.items() for letter, array in zip("xy", pair)}
    return files.npz({f"{name}.npy": changes.get(name, npy(array)) for name, array in named.items()})


KERAS = {
    "truncated": (keras()[:-100], "cannot be read as a Keras mnist.npz"),
    "corrupt": (keras()[:2000] + bytes(50) + keras()[2050:], "cannot be read as a Keras mnist.npz"),
    "not a zip": (b"PK but no more", "cannot be read as a Keras mnist.npz"),
    "array missing": (files.npz({"x_train.npy": npy(MNIST["train"][0])}), "lacks the array 'y_train'"),
    "wrong shape": (keras(x_train=npy(np.zeros((35, 14, 14), np.uint8))), "images of 14 x 14"),
    "wrong dtype": (keras(x_train=npy(np.zeros((35, 28, 28), np.int8))), "images of type int8 and mnist has uint8"),
    "wide labels": (keras(y_train=npy(np.zeros(35, np.int64))), "labels of type int64 and mnist has uint8"),
    "too few labels": (keras(y_train=npy(np.zeros(34, np.uint8))), r"labels of shape \(34,\)"),
    "Fortran order": (keras(x_train=npy(np.asfortranarray(MNIST["train"][0]))), "Fortran order"),
    "huge shape": (keras(x_train=npy_claiming("(999999999999, 28, 28)")), "announces shape"),
    "negative shape": (keras(x_train=npy_claiming("(-1, 28, 28)")), "mnist.npz"),
    "header that nests": (keras(x_train=npy_claiming("(" * 90 + ")" * 90)), "mnist.npz"),
    "header that calls": (keras(x_train=npy_claiming("(__import__('os').mkdir('called'),)")), "mnist.npz"),
    "objects of claim": (keras(x_train=npy_claiming("(35,)", "'|O'")), "Python objects in 'x_train'"),
    "zip bomb": (lambda: keras(x_train=bytes(60_000 * 784 + 8192)), "announces 47,048,192 bytes for 'x_train'"),
}


@pytest.mark.parametrize("case", KERAS)
def test_bad_keras_archives_are_refused(folder, case):
    """The declared sizes, the types and the shapes of an npz are checked before its arrays are believed."""
    content, sentence = KERAS[case]
    (folder / "mnist.npz").write_bytes(content() if callable(content) else content)

    assert_says(refused("mnist"), sentence)
    assert os.listdir() == []


def test_an_npz_of_objects_is_not_unpickled(folder, tmp_path):
    """An object array in an npz is refused; the code in its pickle does not run."""
    objects = np.array([Bomb(str(tmp_path / "ran"))], dtype=object)
    (folder / "mnist.npz").write_bytes(keras(x_train=npy(objects, allow_pickle=True)))

    assert_says(refused("mnist"), "Python objects in 'x_train', which are never loaded")
    assert not (tmp_path / "ran").exists()


def test_a_zip_that_lies_about_its_size_is_refused(folder):
    """A member that unpacks to more than its directory entry says is cut there, and its CRC is wrong."""
    honest = keras()
    size = zipfile.ZipFile(io.BytesIO(honest)).getinfo("x_train.npy").file_size
    (folder / "mnist.npz").write_bytes(honest.replace(struct.pack("<I", size), struct.pack("<I", size - 784)))

    assert_says(refused("mnist"), "mnist.npz")


def cifar_pickle(**changes: object) -> bytes:
    rows, labels = CIFAR["train"][0][:7].reshape(7, -1), CIFAR["train"][1][:7].tolist()
    return pickle.dumps({"data": rows, "labels": labels, **changes}, 2)


MEMO_BOMB = b"\x80\x02Nr\xff\xff\xff\x7f."
PICKLES = {
    "truncated": (files.pickled_files(CIFAR)["data_batch_1"][:-500], "data_batch_1 cannot be read"),
    "empty": (b"", "data_batch_1 cannot be read"),
    "wrong shape": (cifar_pickle(data=np.zeros((7, 784), np.uint8)), r"uint8 of shape \(7, 784\)"),
    "wrong dtype": (cifar_pickle(data=np.zeros((7, 3072), np.float32)), r"float32 of shape \(7, 3072\)"),
    "no array": (cifar_pickle(data=[1, 2, 3]), "pixels as no array"),
    "labels missing": (pickle.dumps({"data": np.zeros((7, 3072), np.uint8)}, 2), "without data and labels"),
    "a label of ten": (cifar_pickle(labels=[10] * 7), "not a list of numbers from 0 to 9"),
    "a label of True": (cifar_pickle(labels=[True] * 7), "not a list of numbers from 0 to 9"),
    "too few labels": (cifar_pickle(labels=[1] * 6), "labels for another number of images|labels of shape"),
    "a list": (pickle.dumps([1, 2], 2), "without data and labels"),
    "object array": (cifar_pickle(data=np.array([{}, []], dtype=object)), "cannot be read"),
    "big-endian": (cifar_pickle(data=np.zeros((7, 3072), ">i8")), "big-endian"),
    "memo bomb": (MEMO_BOMB, "memo number 2147483647 is out of range"),
    "length bomb": (b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"x.", "cannot be read"),
    "set state of a function": (b"\x80\x02cnumpy\ndtype\n}b.", "sets the state of a function"),
    "text opcode": (b"I12345\n.", "uses INT"),
    "too large": (b"\x80\x02" + bytes(40_000_000), "more than .* bytes"),
}


@pytest.mark.parametrize("case", PICKLES)
def test_bad_pickled_batches_are_refused(folder, case):
    """A pickled batch is a dictionary of uint8 pixels and a list of labels, and nothing else."""
    content, sentence = PICKLES[case]
    place = folder / "cifar-10-batches-py"
    files.write_files(place, {**files.pickled_files(CIFAR), "data_batch_1": content})

    assert_says(refused("cifar10"), sentence)


def hostile_pickles(path: str):
    """Pickles that make the folder ``path`` when they are loaded by the ordinary means."""
    name = path.encode()
    text = b"U" + bytes((len(name),)) + name
    reduce = b"cposix\nmkdir\n" if os.name == "posix" else b"cnt\nmkdir\n"
    return {
        "reduce": pickle.dumps(Bomb(path), 2),
        "reduce, protocol 4": pickle.dumps(Bomb(path), 4),
        "reduce, protocol 0": pickle.dumps(Bomb(path), 0),
        "in the labels": cifar_pickle(labels=[Bomb(path)]),
        "as the pixels": cifar_pickle(data=Bomb(path)),
        "inst": b"(" + text + b"i" + reduce[1:] + b".",
        "obj": b"(" + reduce + text + b"o.",
        "newobj": b"\x80\x02" + reduce + text + b"\x85\x81.",
        "as a dtype": b"\x80\x02" + reduce + text + b"\x85R.",
        "through builtins": b"\x80\x02cbuiltins\neval\n" + text + b"\x85R.",
        "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0dcore.os.mkdir\x93" + text + b"\x85R.",
        "persistent id": b"\x80\x02" + text + b"Q.",
        "extension": b"\x80\x02\x82\x01.",
    }


@pytest.mark.parametrize("case", hostile_pickles("x"))
def test_no_code_in_a_pickle_runs(folder, tmp_path, case):
    """A pickle that would run code is refused unrun, as a batch in a folder and as a batch in a tar.gz."""
    target = tmp_path / "ran"
    content = hostile_pickles(str(target))[case]
    batches = {**files.pickled_files(CIFAR), "data_batch_1": content}
    files.write_files(folder / "cifar-10-batches-py", batches)
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(files.tar_gz(batches))

    assert_says(refused("cifar10"), "data_batch_1 cannot be read as a pickled CIFAR-10 batch")
    with pytest.raises(DataError, match=r"cannot be read as a tar\.gz of CIFAR-10 batches"):
        read_tar_split(kind_of("cifar10"), "train", archive, None)
    assert not target.exists()


@pytest.mark.parametrize("case", ["reduce", "reduce, protocol 4", "reduce, protocol 0", "as a dtype", "obj", "inst"])
def test_the_hostile_pickles_are_hostile(tmp_path, case):
    """The ordinary unpickler runs them: the test above would see it."""
    target = tmp_path / "ran"

    pickle.loads(hostile_pickles(str(target))[case])

    assert target.is_dir()


def tar_with(*members: tarfile.TarInfo, files_too: bool = True) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
        for name, content in files.pickled_files(CIFAR).items() if files_too else ():
            member = tarfile.TarInfo("cifar-10-batches-py/" + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return raw.getvalue()


def member(name: str, **attributes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for attribute, value in attributes.items():
        setattr(info, attribute, value)
    return info


def bomb_tar() -> bytes:
    """A tar whose one member goes on for 220 MB of zeros, in 220 kB: gzip files may be joined."""
    head = member("cifar-10-batches-py/readme.html", size=220 << 20).tobuf()
    return gzip.compress(head) + gzip.compress(bytes(1 << 20)) * 220


TARS = {
    "parent name": (lambda: tar_with(member("../escaped", size=4)), r"'\.\./escaped', which leaves its folder"),
    "inner parent": (lambda: tar_with(member("cifar-10-batches-py/../../escaped")), "which leaves its folder"),
    "absolute name": (lambda: tar_with(member("/tmp/escaped", size=4)), "'/tmp/escaped', which leaves its folder"),
    "backslashes": (lambda: tar_with(member("..\\escaped")), "which leaves its folder"),
    "symbolic link": (
        lambda: tar_with(member("cifar-10-batches-py/data_batch_1", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
        "is a link or a device",
    ),
    "hard link": (
        lambda: tar_with(member("cifar-10-batches-py/x", type=tarfile.LNKTYPE, linkname="../../x")),
        "is a link or a device",
    ),
    "device": (lambda: tar_with(member("cifar-10-batches-py/x", type=tarfile.CHRTYPE)), "is a link or a device"),
    "batch twice": (lambda: tar_with(member("more/data_batch_1", size=4)), "'cifar-10-batches-py/data_batch_1' twice"),
    "batch missing": (
        lambda: tar_with(member("cifar-10-batches-py/readme.html"), files_too=False),
        "lacks data_batch_1",
    ),
    "truncated": (lambda: tar_with()[:-2000], "cannot be read as a tar.gz"),
    "not a tar": (lambda: gzip.compress(b"hello" * 1000), "cannot be read as a tar.gz"),
    "bomb": (bomb_tar, "unpacks to more than"),
}


@pytest.mark.parametrize("case", TARS)
def test_bad_archives_are_refused_and_leave_nothing(folder, tmp_path, case):
    """Names that leave the archive, links, devices, doubles and bombs are refused; nothing is written anywhere."""
    make, sentence = TARS[case]
    (folder / "cifar-10-python.tar.gz").write_bytes(make())
    before = sorted(tmp_path.rglob("*"))

    assert_says(refused("cifar10"), sentence)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("size", "sentence"), [(3073 * 7 - 1, "not a multiple of 3,073"), (3073 * 10_001, "more than")]
)
def test_binary_batches_of_the_wrong_length_are_refused(folder, size, sentence):
    """A binary batch has whole records, and 10,000 at most."""
    files.write_files(folder / "cifar-10-batches-bin", {**files.binary_files(CIFAR), "data_batch_2.bin": bytes(size)})

    assert_says(refused("cifar10"), sentence)


def jpeg_files():
    return [files.jpeg(image) for image in CIFAR["train"][0]]


def huge_jpeg() -> bytes:
    """A JPEG file whose header announces 65,500 x 65,500 pixels."""
    content = bytearray(jpeg_files()[0])
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = struct.pack(">HH", 65_500, 65_500)
    return bytes(content)


JPEGS: Dict[str, Any] = {
    "decompression bomb": lambda: ({"files": [huge_jpeg(), *jpeg_files()[1:]]}, "exceeds limit|65500 x 65500"),
    "wrong size": lambda: (
        {"files": [files.jpeg(np.zeros((16, 16, 3), np.uint8)), *jpeg_files()[1:]]},
        "image 0 as 16 x 16 RGB and cifar10 has 32 x 32 RGB",
    ),
    "grey": lambda: ({"files": [files.jpeg(np.zeros((32, 32), np.uint8)), *jpeg_files()[1:]]}, "32 x 32 L"),
    "png": lambda: ({"files": [files.jpeg(CIFAR["train"][0][0], "PNG"), *jpeg_files()[1:]]}, "cannot be read"),
    "truncated image": lambda: ({"files": [jpeg_files()[0][:-300], *jpeg_files()[1:]]}, "truncated"),
    "offsets that fall": lambda: ({"offset": np.arange(36, dtype=np.int64)[::-1]}, "do not rise from 0"),
    "offset out of range": lambda: ({"offset": np.arange(36, dtype=np.int64) * 10**15}, "do not rise from 0"),
    "offsets of 32 bits": lambda: ({"offset": np.arange(36, dtype=np.int32)}, "offsets of type int32"),
    "too few offsets": lambda: ({"offset": np.arange(35, dtype=np.int64)}, r"shape \(35,\) for 35 labels"),
    "labels of floats": lambda: ({"label": np.zeros(35, np.float32)}, "labels of type float32"),
    "a label of ten": lambda: ({"label": np.full(35, 10, np.uint8)}, "label 10"),
    "objects": lambda: ({"jpeg": np.array([{}], dtype=object)}, "Python objects in 'jpeg'"),
}


@pytest.mark.parametrize("case", JPEGS)
def test_bad_jpeg_archives_are_refused(folder, case):
    """Offsets, types and the size in every JPEG header are checked before pixels are decoded."""
    changes, sentence = JPEGS[case]()
    content = changes.pop("files", None) or jpeg_files()
    files.write_jpeg_npz(folder / "train.npz", content, CIFAR["train"][1], **changes)
    files.write_jpeg_npz(folder / "test.npz", jpeg_files()[:7], CIFAR["test"][1])

    assert_says(refused("cifar10"), sentence)


@at_most(120)
@given(st.data())
def test_mutated_files_are_read_or_refused(tmp_path_factory, data):
    """Whatever bytes of a good file are changed, reading it gives a split or a DataError."""
    folder = tmp_path_factory.mktemp("mutated")
    kinds = ("idx", "keras", "pickle", "tar", "jpeg")
    kind = data.draw(st.sampled_from(kinds), label="kind")
    content = bytearray(GOOD[kind])
    for _ in range(data.draw(st.integers(1, 6), label="changes")):
        # Headers and directories lie at the two ends of a file.
        span = data.draw(st.sampled_from([64, 512, len(content)]), label="span")
        place = data.draw(st.integers(-min(span, len(content)), min(span, len(content)) - 1), label="place")
        content[place] = data.draw(st.integers(0, 255), label="byte")
    if data.draw(st.booleans(), label="cut"):
        content = content[: data.draw(st.integers(0, len(content)), label="length")]
    path = folder / "data_batch_1"
    path.write_bytes(bytes(content))

    try:
        split = READ[kind](path)
    except DataError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert split.images.dtype == np.uint8
        assert len(split.images) == len(split.labels)
    assert "\n" not in refusal


def good_jpeg() -> bytes:
    raw = io.BytesIO()
    content = jpeg_files()[:7]
    joined = np.frombuffer(b"".join(content), np.uint8)
    np.savez(raw, jpeg=joined, offset=np.cumsum([0, *map(len, content)], dtype=np.int64), label=CIFAR["test"][1])
    return raw.getvalue()


GOOD = {
    "idx": files.idx_file(MNIST["train"][0]),
    "keras": keras(),
    "pickle": files.pickled_files(CIFAR)["data_batch_1"],
    "tar": files.tar_gz(files.pickled_files(CIFAR)),
    "jpeg": good_jpeg(),
}


def read_idx_images(path):
    labels = path.parent / "labels"
    labels.write_bytes(files.idx_file(MNIST["train"][1]))
    return read_idx_split(kind_of("mnist"), "train", path, labels, None)


READ = {
    "idx": read_idx_images,
    "keras": lambda path: read_keras_split(kind_of("mnist"), "train", path, None),
    "pickle": lambda path: read_folder_split(kind_of("cifar10"), "train", path.parent, 1, binary=False),
    "tar": lambda path: read_tar_split(kind_of("cifar10"), "train", path, None),
    "jpeg": lambda path: read_jpeg_split(kind_of("cifar10"), "train", path, None),
}


@pytest.mark.parametrize("kind", GOOD)
def test_the_unmutated_files_are_good(tmp_path, kind):
    """What the mutations begin with is read."""
    path = tmp_path / "data_batch_1"
    path.write_bytes(GOOD[kind])

    assert len(READ[kind](path)) > 0
