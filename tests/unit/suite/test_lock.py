"""The lock pins what setup.cfg asks for on every Python that is supported, each file of it by its hash."""

from __future__ import annotations

import configparser
import re
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Dict, List, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
OUTSIDE = {"ipu-conformance", "pip"}
"""Distributions of the environment that are not installed from the lock."""


class Entry(NamedTuple):
    """An entry of the lock."""

    requirement: Requirement
    hashes: List[str]


def entries():
    """All entries of the lock."""
    found = []
    for text in re.split(r"\n(?=\w)", (ROOT / "constraints.txt").read_text()):
        if text.startswith("#"):
            continue
        pin, *hashes = text.replace("\\\n", "").split("    --hash=")
        found.append(Entry(Requirement(pin.strip()), [each.strip() for each in hashes]))
    return found


LOCK = entries()


def applies(requirement: Requirement, python: str) -> bool:
    """Whether a requirement holds for a Python on Linux."""
    environment = {
        "python_version": python, "python_full_version": f"{python}.5", "sys_platform": "linux", "extra": "",
        "platform_machine": "x86_64", "platform_python_implementation": "CPython", "implementation_name": "cpython",
    }  # fmt: skip
    return requirement.marker is None or requirement.marker.evaluate(environment)


def pins(python: str) -> Dict[str, Entry]:
    """The entries for a Python by name; two of one name would contradict each other."""
    found: Dict[str, Entry] = {}
    for entry in LOCK:
        if applies(entry.requirement, python):
            name = canonicalize_name(entry.requirement.name)
            assert name not in found, f"{name} is pinned twice for Python {python}"
            found[name] = entry
    return found


def declared() -> List[Requirement]:
    """All that setup.cfg asks for, with all extras."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lists = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    lines = [line.strip() for text in lists for line in text.splitlines()]
    kept = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [requirement for requirement in kept if requirement.name not in OUTSIDE]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_is_what_setup_cfg_asks_for(python):
    """Every requirement is pinned, at a version that it allows; .ci/lock makes the lock again."""
    locked = pins(python)
    for requirement in declared():
        if applies(requirement, python):
            name = canonicalize_name(requirement.name)
            assert name in locked, f"{name} is not in the lock for Python {python}; run .ci/lock"
            (pin,) = locked[name].requirement.specifier

            assert requirement.specifier.contains(pin.version), f"{name} is {pin.version}, not {requirement.specifier}"


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_the_versions_that_were_chosen(python):
    """What constraints.in says is what is installed."""
    locked = pins(python)
    lines = [line.strip() for line in (ROOT / "constraints.in").read_text().splitlines()]
    for chosen in (Requirement(line) for line in lines if line and not line.startswith("#")):
        if applies(chosen, python):
            assert locked[canonicalize_name(chosen.name)].requirement.specifier == chosen.specifier


def test_every_file_has_a_hash():
    """Each entry is exact, and names SHA-256 hashes; only PyTorch's for CPUs is installed."""
    for requirement, hashes in LOCK:
        (pin,) = requirement.specifier

        assert pin.operator == "==", requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement
        assert not requirement.name.startswith(("nvidia", "cuda", "triton")), requirement


def test_every_distribution_of_the_environment_is_locked():
    """Nothing is installed that the lock does not name."""
    locked = pins("{}.{}".format(*sys.version_info))
    places = [sysconfig.get_path(name) for name in ("purelib", "platlib")]  # setuptools brings copies of others along
    there = {str(canonicalize_name(each.metadata["Name"])) for each in metadata.distributions(path=places)}

    assert there - set(locked) - OUTSIDE == set()
