"""Which suite was run: the digest of its files."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


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
