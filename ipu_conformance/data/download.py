"""Downloading one file: resumed where it was interrupted, checked by its SHA-256, put in place in one step."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
from pathlib import Path
from typing import IO, Any

from ipu_conformance.data.dataset import DataError
from ipu_conformance.data.mirrors import RemoteFile

TIMEOUT = 6.0
"""Seconds to wait for a mirror's next bytes; a machine without network access finds out soon."""

_BLOCK = 1 << 16


def download(mirror: str, file: RemoteFile, folder: Path) -> Path:
    """``folder / file.name`` from ``mirror``; an interrupted download is kept as .part and continued."""
    target = folder / file.name
    if target.is_file() and sha256_of(target) == file.sha256:
        return target
    part = folder / (file.name + ".part")
    if part.exists() and part.stat().st_size > file.size:
        part.unlink()
    have = part.stat().st_size if part.exists() else 0
    if have < file.size:
        try:
            _append(mirror + file.name, file, part, have)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise DataError(f"{mirror + file.name} cannot be downloaded ({reason})") from error
    if part.stat().st_size < file.size:
        arrived = f"{part.stat().st_size:,} of {file.size:,} bytes"
        raise DataError(f"{mirror + file.name} broke off after {arrived}; run the command again to continue")
    found = sha256_of(part)
    if found != file.sha256:
        part.unlink()
        raise DataError(f"{mirror + file.name} has SHA-256 {found} and the original has {file.sha256}; it was not kept")
    os.replace(part, target)
    return target


def _append(url: str, file: RemoteFile, part: Path, have: int) -> None:
    """Add what is missing to ``part``; a server that does not continue starts the file again."""
    request = urllib.request.Request(url, headers={"User-Agent": "ipu-conformance"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        continued = have and response.status == 206 and _starts_at(response, have)
        with part.open("ab" if continued else "wb") as stream:
            _copy(response, stream, file, have if continued else 0)


def _starts_at(response: Any, have: int) -> bool:
    """Whether a partial answer begins where the file breaks off."""
    return str(response.headers.get("Content-Range", "")).startswith(f"bytes {have}-")


def _copy(response: Any, stream: IO[bytes], file: RemoteFile, have: int) -> None:
    """Copy with a progress bar; not one byte more than the file has is written."""
    from tqdm import tqdm

    # disable=None: no bar where the error stream is not a terminal.
    with tqdm(total=file.size, initial=have, unit="B", unit_scale=True, desc=file.name, disable=None) as bar:
        while have < file.size:
            block = response.read(min(_BLOCK, file.size - have))
            if not block:
                return
            stream.write(block)
            have += len(block)
            bar.update(len(block))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
