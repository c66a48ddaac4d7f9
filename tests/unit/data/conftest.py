"""Every test here has a home, a working folder and caches of its own, and nothing of the machine's."""

from __future__ import annotations

import pytest

from ipu_conformance.data import loading

VARIABLES = ("IPU_CONFORMANCE_DATA", "IPU_CONFORMANCE_CACHE", "KERAS_HOME", "TORCH_HOME", "XDG_CACHE_HOME")


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No data set of the machine is visible, and nothing read before is remembered."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.chdir(work)
    loading._read.cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that ``IPU_CONFORMANCE_DATA`` names."""
    path = tmp_path / "data"
    path.mkdir()
    monkeypatch.setenv("IPU_CONFORMANCE_DATA", str(path))
    return path
