"""Writes the lock that .ci/lock has resolved: without CUDA, for all platforms, with the index's own builds."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

HEADER = """\
# The lock of the project: every distribution that `make qualify` and `make test` install, for Python 3.9 to 3.13, with
# the hashes of all files of its version. Made by .ci/lock from constraints.in and setup.cfg; do not edit.
"""
CUDA = re.compile(r"(nvidia-|cuda-|triton==)")
"""What PyTorch's builds with CUDA ask for; the builds for CPUs do without."""


def main(resolved: Path, builds: Path) -> None:
    """Print the lock."""
    print(HEADER, end="")
    text = resolved.read_text().replace(" and sys_platform == 'linux'", "")
    for entry in re.split(r"\n(?=\S)", text.strip()):
        if CUDA.match(entry):
            continue
        version = re.match(r"torch==([0-9.]+)", entry)
        for file in sorted(builds.glob(f"torch-{version[1]}[+-]*.whl")) if version and builds.is_dir() else ():
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            if digest not in entry:
                entry += f" \\\n    --hash=sha256:{digest}"
        print(entry)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
