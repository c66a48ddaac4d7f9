"""The ``ipu-conformance`` command: a table of subcommands, each imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import NamedTuple, Sequence

from ipu_conformance import __version__
from ipu_conformance.command_line import exit_code


class Command(NamedTuple):
    """A row of the command table; ``module`` has ``configure(parser)`` and ``run(args) -> exit code``."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command("doctor", "ipu_conformance.cli.doctor", "what is installed, which target would run, what is missing"),
    Command("qualify", "ipu_conformance.cli.qualify", "run the suite on a device and leave a report with the verdict"),
    Command("data", "ipu_conformance.cli.data", "list, verify, fetch and write out the data sets"),
    Command("ir", "ipu_conformance.cli.ir", "show, diff, draw and convert IR graphs"),
    Command("baseline", "ipu_conformance.cli.baseline", "record, show and check convergence baselines"),
    Command("coverage", "ipu_conformance.cli.coverage", "what the suite asks of each framework, and the gaps"),
    Command("faults", "ipu_conformance.cli.faults", "ways for a device to be wrong, and the cases that notice them"),
    Command("levels", "ipu_conformance.cli.levels", "which cases smoke and premerge have; remake the lists"),
    Command("report", "ipu_conformance.cli.report", "verify, merge and compare the reports of qualifications"),
    Command("mandatory", "ipu_conformance.cli.mandatory", "the cases that a device must pass: check, remake"),
    Command("tolerances", "ipu_conformance.cli.tolerances", "measure the tolerances that the suite comes with again"),
    Command("case", "ipu_conformance.cli.case", "run one case of the suite alone"),
    Command("train", "ipu_conformance.cli.train", "train one of the workloads"),
    Command("infer", "ipu_conformance.cli.infer", "use the trained model of a workload"),
    Command("emulate", "ipu_conformance.cli.emulate", "run a program with the vendor's API emulated"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code; bad input is one sentence on stderr and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)

    def run() -> int:
        args = _parser(arguments).parse_args(arguments)
        code: int = args.run(args)
        return code

    return exit_code(run)


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """A parser in which only the subcommand that was typed is configured, so that the others cost no import."""
    parser = argparse.ArgumentParser(
        prog="ipu-conformance",
        description="Does this device train the way the specification says?",
    )
    parser.add_argument("--version", action="version", version=f"ipu-conformance {__version__}")
    subparsers = parser.add_subparsers(metavar="command", required=True)
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name, help=command.help, description=command.help[0].upper() + command.help[1:] + "."
        )
        if command.name == asked:
            module = importlib.import_module(command.module)
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
    return parser
