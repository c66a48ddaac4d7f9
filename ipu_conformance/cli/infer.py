"""``ipu-conformance infer``: the trained model of a workload at work, on a target or natively."""

from __future__ import annotations

import argparse
import importlib

from ipu_conformance.cli import on_target
from ipu_conformance.workloads import WORKLOADS

INFERENCE = {name: workload.inference for name, workload in WORKLOADS.items() if workload.inference is not None}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add one action for each workload that has a model to use, with its own options."""
    actions = parser.add_subparsers(dest="workload", metavar="workload", required=True)
    for name, module in INFERENCE.items():
        action = actions.add_parser(name, help=WORKLOADS[name].help, description=f"Inference: {WORKLOADS[name].help}.")
        on_target.configure(action)
        importlib.import_module(module).configure(action)


def run(args: argparse.Namespace) -> int:
    """Activate the target and use the model."""
    on_target.activate(WORKLOADS[args.workload], args)
    code: int = importlib.import_module(INFERENCE[args.workload]).run(args)
    return code
