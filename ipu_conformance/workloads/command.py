"""The commands that run a workload: where it runs, making that ready, and training or using the trained model."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any, Mapping, Optional, Sequence

from ipu_conformance import __version__
from ipu_conformance.command_line import exit_code
from ipu_conformance.targets import FRAMEWORKS, TargetError, choose, discover
from ipu_conformance.workloads import WORKLOADS, Workload

MODULES: Mapping[str, Mapping[str, str]] = {
    "train": {name: workload.module for name, workload in WORKLOADS.items()},
    "infer": {name: workload.inference for name, workload in WORKLOADS.items() if workload.inference is not None},
}
"""For each command the workloads that have it, and the module with its ``configure(parser)`` and ``run(args)``."""


def add_workloads(parser: argparse.ArgumentParser, command: str) -> None:
    """Add one action for each workload that has the command, with its own options."""
    actions = parser.add_subparsers(dest="workload", metavar="workload", required=True)
    for name in MODULES[command]:
        help = WORKLOADS[name].help
        configure(actions.add_parser(name, help=help, description=_description(command, name)), command, name)


def _description(command: str, name: str) -> str:
    help = WORKLOADS[name].help
    return f"{help[0].upper()}{help[1:]}." if command == "train" else f"Inference: {help}."


def configure(parser: argparse.ArgumentParser, command: str, name: str) -> None:
    """Add ``--native`` and ``--ipu-target``, and the options of a workload."""
    parser.add_argument("--native", action="store_true", help="run without any IPU API: the reference")
    parser.add_argument(
        "--ipu-target", default="auto", metavar="TARGET", help="what executes the workload (%(default)s)"
    )
    _module(command, name).configure(parser)


def run(command: str, name: str, args: argparse.Namespace) -> int:
    """Activate the target and run the workload; the exit code."""
    target = activate(WORKLOADS[name], args)
    if command == "train":
        print(_headline(name, target, _module(command, name).settings_of(args).data), file=sys.stderr, flush=True)
    code: int = _module(command, name).run(args)
    return code


def _headline(name: str, target: Optional[str], data: str) -> str:
    """What a training is about, in a line: versions, target and data set."""
    framework = FRAMEWORKS[WORKLOADS[name].framework]
    where = "without any IPU API" if target is None else f"on {target}"
    return f"{name}: {framework.module} {framework.version} {where}, ipu-conformance {__version__}, data set {data}"


def main(command: str, name: str, argv: Sequence[str] | None = None) -> int:
    """What ``ipu-conformance COMMAND WORKLOAD`` does, as a program of its own."""
    parser = argparse.ArgumentParser(prog=f"ipu-conformance {command} {name}", description=_description(command, name))
    configure(parser, command, name)
    return exit_code(lambda: run(command, name, parser.parse_args(sys.argv[1:] if argv is None else argv)))


def _module(command: str, name: str) -> Any:
    return importlib.import_module(MODULES[command][name])


def activate(workload: Workload, args: argparse.Namespace) -> Optional[str]:
    """Make the target ready that the options ask for, and name it; a native run needs the framework alone."""
    framework = FRAMEWORKS[workload.framework]
    if args.native:
        if not framework.installed:
            raise TargetError(
                f"{framework.module} is not installed, and the native run of {workload.name} needs it; "
                f"pip install 'ipu-conformance[{framework.extra}]'"
            )
        return None
    targets = discover()
    choice = choose(framework, args.ipu_target, targets)
    if choice.target is None:
        raise TargetError(f"{workload.name} cannot run on target {args.ipu_target!r}: {choice.reason}")
    targets[choice.target].activate(framework)
    return choice.target
