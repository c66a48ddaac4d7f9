"""Files without a name and, where the system has that, without a disk."""

from __future__ import annotations

import os
import tempfile
from typing import IO


def memory_file() -> IO[str]:
    """A file that processes which are started share, that no clean-up removes and no full disk cuts short."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("ipu-conformance"), "w+", encoding="utf-8", errors="replace")
    return tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
