from __future__ import annotations

import os
import stat

import pytest

from ipu_conformance.ir import IRError, dumps, files, format_of, read, write
from tests.unit.refusals import refused

from . import hlo_files, networks, paddle_files, tf_files

FRAMEWORK_FILES = {
    "paddle": paddle_files.layer(),
    "tensorflow": tf_files.layer(),
    "hlo": hlo_files.LAYER.encode(),
}


@pytest.mark.parametrize("format", sorted(FRAMEWORK_FILES))
def test_the_content_of_a_frameworks_file_tells_the_format(tmp_path, format):
    """A file without an extension that helps is known by its first bytes."""
    (tmp_path / "model").write_bytes(FRAMEWORK_FILES[format])

    assert read(tmp_path / "model") == read(FRAMEWORK_FILES[format], format)


@pytest.mark.parametrize("format", ["json", "popart", "onnx"])
def test_the_content_tells_the_format(tmp_path, format):
    """A file is read whatever its name is, from a path or from bytes, with the format given or not."""
    path = tmp_path / "file.with.no.meaning"
    write(networks.convnet(), path, format)

    graphs = [read(path), read(str(path)), read(path.read_bytes()), read(path, format)]
    assert graphs == [graphs[0]] * 4
    assert graphs[0].ops == networks.convnet().ops


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.json", "json"),
        ("a.popart.json", "popart"),
        ("a.POPART", "popart"),
        ("a.onnx", "onnx"),
        ("a.dot", "dot"),
        ("a.gv", "dot"),
        ("a.svg", "svg"),
    ],
)
def test_the_extension_tells_the_format_to_write(name, format):
    """Extensions are looked up in one table, the longest first."""
    assert format_of(f"folder.onnx/{name}") == format


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda path: format_of("a.txt"), "a.txt has none of the extensions .popart.json"),
        (lambda path: write(networks.convnet(), path / "a.json", "yaml"), "not written as 'yaml'; use one of"),
        (lambda path: read(b"{}", "dot"), "not read as 'dot'; use one of popart, json, onnx"),
        (lambda path: read(path / "missing.json"), "missing.json cannot be read: No such file"),
        (lambda path: read(path), "cannot be read: Is a directory"),
        (lambda path: read("a\0b"), "cannot be read"),
        (lambda path: write(networks.convnet(), path / "no" / "a.json"), "a.json cannot be written: No such file"),
        (lambda path: read(b""), "the data: it is empty"),
        (lambda path: read(b" \n"), "it is empty"),
        (lambda path: read(b"{}"), "the data: the document lacks the key 'format'"),
        (lambda path: read(b"[1]", "popart"), "the document is a list"),
        (lambda path: read(b"hello"), "not an ONNX model"),
    ],
)
def test_what_cannot_be_read_or_written_is_one_sentence(tmp_path, act, said):
    """The error names the file and what is wrong with it."""
    with refused(IRError, said):
        act(tmp_path)


def test_more_than_the_limit_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    """A file of exactly the limit is read, one byte more is not; an endless one is not read to its end."""
    data = dumps(networks.convnet(), "json")
    (tmp_path / "g.json").write_bytes(data)
    assert read(tmp_path / "g.json", limit=len(data)) == networks.convnet()

    def never(*_):
        raise AssertionError("parsed")

    monkeypatch.setattr(files, "loads", never)
    for source in (tmp_path / "g.json", data, "/dev/zero"):
        with pytest.raises(IRError, match=r"more than \d+ bytes"):
            read(source, limit=len(data) - 1)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    """A full disk at any moment leaves the old content, and nothing beside it."""
    path = tmp_path / "g.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, full)
            with pytest.raises(IRError, match="No space left on device"):
                write(networks.convnet(), path)
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["g.json"]


def test_a_graph_that_the_format_refuses_leaves_no_file(tmp_path):
    """Nothing is opened before the bytes are made."""
    with pytest.raises(IRError, match="ONNX"):
        write(networks.chain("Relu Conv"), tmp_path / "g.onnx")

    assert os.listdir(tmp_path) == []


def test_written_files_have_ordinary_permissions_and_links_are_followed(tmp_path):
    """A new file is as readable as any other, and a symbolic link keeps pointing to the file it names."""
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    write(networks.convnet(), tmp_path / "link.json")
    (tmp_path / "plain").touch()

    assert (tmp_path / "link.json").is_symlink()
    assert read(tmp_path / "real.json") == networks.convnet()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("real.json", "plain")}
    assert len(modes) == 1
