"""Where the suite's files are, and their digest: which suite was run."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path

from ipu_conformance.errors import ConformanceError


class SuiteError(ConformanceError):
    """The installation has no suite."""


@functools.lru_cache(maxsize=1)
def suite_folder() -> Path:
    """Where the conformance suite stands: tests/ipu of the checkout, shipped as ipu_conformance.suite."""
    checkout = Path(__file__).resolve().parents[1] / "tests" / "ipu"
    if checkout.is_dir():
        return checkout
    spec = importlib.util.find_spec("ipu_conformance.suite")
    if spec is None or not spec.submodule_search_locations:
        raise SuiteError("The installation holds no ipu_conformance.suite; install the package again.")
    return Path(next(iter(spec.submodule_search_locations))).resolve()


@functools.lru_cache(maxsize=None)
def in_suite(path: Path) -> bool:
    """Whether a file belongs to the conformance suite."""
    return suite_folder() in path.resolve().parents


@functools.lru_cache(maxsize=1)
def suite_digest(folder: Path) -> str:
    """The SHA-256 of the names and contents of the suite's files; compiled ones do not count."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".json") and path.is_file():
            digest.update(
                f"{path.relative_to(folder).as_posix()}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
            )
    return digest.hexdigest()
