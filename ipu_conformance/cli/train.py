"""``ipu-conformance train``: one of the workloads on a target, or natively as its own reference."""

from __future__ import annotations

import argparse
import importlib

from ipu_conformance.cli import on_target
from ipu_conformance.workloads import WORKLOADS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add one action for each workload, with its own options."""
    actions = parser.add_subparsers(dest="workload", metavar="workload", required=True)
    for workload in WORKLOADS.values():
        action = actions.add_parser(
            workload.name, help=workload.help, description=f"{workload.help[0].upper()}{workload.help[1:]}."
        )
        on_target.configure(action)
        importlib.import_module(workload.module).configure(action)


def run(args: argparse.Namespace) -> int:
    """Activate the target and run the workload."""
    workload = WORKLOADS[args.workload]
    on_target.activate(workload, args)
    code: int = importlib.import_module(workload.module).run(args)
    return code
