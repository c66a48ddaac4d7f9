"""``ipu-conformance emulate``: any program runs unmodified, with the vendor's API emulated."""

from __future__ import annotations

import argparse
from typing import List

from ipu_conformance.emulator import emulate
from ipu_conformance.emulator.emulate import EmulateError
from ipu_conformance.targets import Emulator


def configure(parser: argparse.ArgumentParser) -> None:
    """Take a script or ``-m module`` as python does; all that follows belongs to the program."""
    parser.usage = "%(prog)s [-h] [--ipu-target emulator] (script.py | -m module) [argument ...]"
    parser.add_argument(
        "--ipu-target",
        choices=[Emulator.name],
        help="use the emulator even where a real SDK is installed, which is refused otherwise",
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="module", help="run a module, with its arguments"
    )
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="script.py", help="run a script, with its arguments"
    )


def run(args: argparse.Namespace) -> int:
    """Become the program; this process ends as it ends."""
    emulate.exec_program(_arguments(args), named=args.ipu_target is not None)


def _arguments(args: argparse.Namespace) -> List[str]:
    """What python is given: argparse leaves what follows a ``--`` to the second of the two."""
    if args.module is not None:
        if not args.module:
            raise EmulateError("-m needs the name of a module, as in: ipu-conformance emulate -m package.train")
        return ["-m", *args.module, *args.program]
    program: List[str] = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not program:
        raise EmulateError("no program is given; name a script, or a module with -m")
    return program
