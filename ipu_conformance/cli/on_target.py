"""What the commands that run a workload share: the options of where it runs, and making that ready."""

from __future__ import annotations

import argparse

from ipu_conformance.targets import FRAMEWORKS, TargetError, choose, discover
from ipu_conformance.workloads import Workload


def configure(parser: argparse.ArgumentParser) -> None:
    """Add ``--native`` and ``--ipu-target``."""
    parser.add_argument("--native", action="store_true", help="run without any IPU API: the reference")
    parser.add_argument(
        "--ipu-target", default="auto", metavar="TARGET", help="what executes the workload (%(default)s)"
    )


def activate(workload: Workload, args: argparse.Namespace) -> None:
    """Make the target ready that the options ask for; a native run needs the framework alone."""
    framework = FRAMEWORKS[workload.framework]
    if args.native:
        if not framework.installed:
            raise TargetError(
                f"{framework.module} is not installed, and the native run of {workload.name} needs it; "
                f"pip install 'ipu-conformance[{framework.extra}]'"
            )
        return
    targets = discover()
    choice = choose(framework, args.ipu_target, targets)
    if choice.target is None:
        raise TargetError(f"{workload.name} cannot run on target {args.ipu_target!r}: {choice.reason}")
    targets[choice.target].activate(framework)
