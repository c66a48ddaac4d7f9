"""``ipu-conformance case ID``: run one case of the suite alone, as a failure's last line says."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from ipu_conformance.errors import ConformanceError
from ipu_conformance.selection import OPTIONS, select

EXAMPLE = "poptorch/feeding/test_batching_ipu.py::test_every_input_must_divide[1]"


USAGE_ERROR = 4
"""pytest's exit code for a case that it does not find."""


class CaseError(ConformanceError):
    """No case of the suite has the name that was given."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # an id in two lines is none
    parser.epilog = f"example:\n  ipu-conformance case '{EXAMPLE}'"
    parser.add_argument("id", help="the case, as a failure names it: file.py::name, below the suite's folder")
    target = OPTIONS["target"]
    parser.add_argument(target.flag, dest="target", metavar="TARGET", help=f"{target.help} ({target.default})")


def run(args: argparse.Namespace) -> int:
    """Run the case with pytest, in a process of its own."""
    from ipu_conformance.suite_files import suite_folder

    file, _, name = args.id.partition("::")
    folder = suite_folder()
    if not file.endswith(".py") or not (folder / file).is_file():
        raise CaseError(f"The suite has no file {file!r}; give a case as file.py::name, below the suite's folder.")
    if not name:
        raise CaseError(f"{file} is a file of cases; give one of them as file.py::name.")
    # What the target refuses is said here; pytest then has one reason left to refuse the case.
    select({"target": args.target, "frameworks": OPTIONS["frameworks"].default})
    command = [sys.executable, "-m", "pytest", str(folder / args.id), "--ipu-level", "soak", "-p", "no:cacheprovider"]
    command += ["--ipu-no-preflight"]  # one case says itself that its device does not answer
    command += [OPTIONS["frameworks"].flag, OPTIONS["frameworks"].default]  # the case says which it needs
    command += [OPTIONS["target"].flag, args.target] if args.target is not None else []
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    ended = subprocess.run(command, env=environment, check=False).returncode
    if ended == USAGE_ERROR:
        raise CaseError(f"The suite has no case {args.id!r}; a failure names it whole.")
    return ended
