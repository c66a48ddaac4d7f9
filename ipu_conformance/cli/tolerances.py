"""``ipu-conformance tolerances``: measure the suite's tolerances again, after the oracle or the suite has changed."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ipu_conformance.errors import ConformanceError
from ipu_conformance.oracle.tolerance import cache


class RemeasureError(ConformanceError):
    """The tolerances of the suite cannot be measured."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FOLDER",
        help=f"take what a run of the suite left in this folder, which was {cache.VARIABLE}, instead of running it",
    )


def run(args: argparse.Namespace) -> int:
    """Run the suite without the file that is shipped, and write what it measured into a new one."""
    if args.source is not None:
        return _pack(args.source)
    from ipu_conformance.suite_files import suite_folder

    command = [sys.executable, "-m", "pytest", str(suite_folder()), "-m", "ipu", "--ipu-level", "qualify", "-q"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, cache.VARIABLE: folder, cache.WITHOUT_SHIPPED: "1"}
        code = subprocess.run([*command, "-n", str(os.cpu_count() or 1)], env=environment, check=False).returncode
        return code or _pack(Path(folder))


def _pack(source: Path) -> int:
    count = cache.pack(source / "tolerances")
    if not count:
        raise RemeasureError(f"{source} holds no tolerances; run the suite with {cache.VARIABLE} set to it.")
    print(f"{cache.SHIPPED}: {count} tolerances, {cache.SHIPPED.stat().st_size / 1e6:.2f} MB")
    return 0
