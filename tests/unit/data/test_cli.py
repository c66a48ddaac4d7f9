"""``ipu-conformance data``: its tables, its exit codes and what it does not import."""

from __future__ import annotations

import json

import numpy as np

from ipu_conformance.cli import main
from ipu_conformance.data import originals

from . import files


def test_list_prints_a_row_for_every_set(folder, capsys):
    """The table and the JSON tell the same."""
    files.write_keras(folder, files.arrays((28, 28)))

    assert main(["data", "list"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert main(["data", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)

    assert [line.split()[0] for line in table[1:]] == [row["name"] for row in rows]
    assert rows[0]["images"] == [35, 7]
    assert "35 + 7" in table[1]
    assert "data fetch cifar10" in table[2]


def test_list_refuses_a_variable_that_names_no_folder(monkeypatch, capsys):
    """One sentence and exit code 2."""
    monkeypatch.setenv("IPU_CONFORMANCE_DATA", "nowhere")

    assert main(["data", "list"]) == 2
    assert capsys.readouterr().err.startswith("ipu-conformance: error: IPU_CONFORMANCE_DATA is 'nowhere'")


def test_verify_passes_what_is_exact_and_fails_what_differs(folder, capsys, monkeypatch):
    """Exit code 0 means that every byte is the original's."""
    made = files.arrays((28, 28))
    files.write_idx(folder, made, packed=True)

    assert main(["data", "verify", "mnist"]) == 1
    assert "mnist: differs" in capsys.readouterr().out
    for part in originals.verify("mnist").parts:
        monkeypatch.setitem(originals.DIGESTS, part.name, part.digest)
    assert main(["data", "verify"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert [line.split(" (")[0] for line in lines if not line.startswith(" ")] == [
        "mnist: bit-exact",
        "synthetic-digits: bit-exact",
        "synthetic-cifar: bit-exact",
    ]


def test_verify_goes_on_after_a_set_that_cannot_be_read(folder, capsys):
    """The damaged set is reported, and the exit code is not 0."""
    (folder / "mnist.npz").write_bytes(b"")

    assert main(["data", "verify", "--json"]) == 1

    states = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states == {"mnist": "unreadable", "synthetic-digits": "bit-exact", "synthetic-cifar": "bit-exact"}


def test_export_writes_one_of_each_digit(tmp_path, capsys):
    """Ten pictures are ten classes, and their pixels are the set's."""
    from PIL import Image

    from ipu_conformance.data import load

    assert main(["data", "export", "synthetic-digits", "--to", str(tmp_path / "png"), "--count", "10"]) == 0

    paths = sorted((tmp_path / "png").iterdir())
    assert capsys.readouterr().out.split() == [str(path) for path in paths]
    assert [path.name.split("-")[2] for path in paths] == list("0123456789")
    test = load("synthetic-digits", train=0).test
    for path in paths:
        with Image.open(path) as picture:
            assert np.array_equal(np.asarray(picture), test.images[int(path.stem[-5:]), :, :, 0])


def test_export_writes_one_class_in_colour(tmp_path):
    """--digit chooses a class and --split the samples."""
    from PIL import Image

    to = tmp_path / "png"
    files.write_files(
        tmp_path / "home/.keras/datasets/cifar-10-batches-py", files.pickled_files(files.arrays((32, 32, 3)))
    )
    label = int(files.arrays((32, 32, 3))["train"][1][0])

    arguments = ["--to", str(to), "--count", "1", "--digit", str(label), "--split", "train"]
    assert main(["data", "export", "cifar10", *arguments]) == 0

    (path,) = to.iterdir()
    with Image.open(path) as picture:
        assert np.array_equal(np.asarray(picture), files.arrays((32, 32, 3))["train"][0][0])


def test_export_refuses_more_than_there_is(tmp_path, capsys):
    """Nothing is written."""
    assert main(["data", "export", "synthetic-digits", "--to", str(tmp_path / "png"), "--count", "99999"]) == 2

    assert "there are 10,000 samples" in capsys.readouterr().err
    assert not (tmp_path / "png").exists()
