"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from ipu_conformance.atomic_write import replacing


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    """While it is written, the old content stays; afterwards nothing else is left."""
    path = tmp_path / "file.json"
    path.write_text("old")

    with replacing(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"

    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def interrupted(path: Path, *, begun: bool) -> None:
    """Write a file, begun or not, until somebody presses Ctrl-C."""
    with replacing(path) as part:
        if begun:
            part.write_text("half")
        raise KeyboardInterrupt


@pytest.mark.parametrize("begun", [True, False], ids=["half-written", "not begun"])
def test_who_fails_changes_nothing(tmp_path: Path, begun: bool) -> None:
    """An error leaves the old content and no part of the new."""
    path = tmp_path / "file.json"
    path.write_text("old")

    with pytest.raises(KeyboardInterrupt):
        interrupted(path, begun=begun)

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_others_may_read_it(tmp_path: Path) -> None:
    """A file has the permissions of any other that the user makes."""
    (tmp_path / "plain").write_text("")
    with replacing(tmp_path / "file") as part:
        part.write_text("")

    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode
