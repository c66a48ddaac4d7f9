"""``ipu-conformance train``: one of the workloads on a target, or natively as its own reference."""

from __future__ import annotations

import argparse
import importlib

from ipu_conformance.targets import FRAMEWORKS, TargetError, choose, discover
from ipu_conformance.workloads import WORKLOADS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add one action for each workload, with its own options."""
    actions = parser.add_subparsers(dest="workload", metavar="workload", required=True)
    for workload in WORKLOADS.values():
        action = actions.add_parser(workload.name, help=workload.help, description=workload.help.capitalize() + ".")
        action.add_argument("--native", action="store_true", help="run without any IPU API: the reference")
        action.add_argument(
            "--ipu-target", default="auto", metavar="TARGET", help="what executes the workload (%(default)s)"
        )
        importlib.import_module(workload.module).configure(action)


def run(args: argparse.Namespace) -> int:
    """Activate the target and run the workload."""
    workload = WORKLOADS[args.workload]
    framework = FRAMEWORKS[workload.framework]
    if args.native:
        if not framework.installed:
            raise TargetError(
                f"{framework.module} is not installed, and the native run of {workload.name} needs it; "
                f"pip install 'ipu-conformance[{framework.extra}]'"
            )
    else:
        targets = discover()
        choice = choose(framework, args.ipu_target, targets)
        if choice.target is None:
            raise TargetError(f"{workload.name} cannot run on target {args.ipu_target!r}: {choice.reason}")
        targets[choice.target].activate(framework)
    code: int = importlib.import_module(workload.module).run(args)
    return code
