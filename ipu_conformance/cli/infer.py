"""``ipu-conformance infer``: the trained model of a workload at work, on a target or natively."""

from __future__ import annotations

import argparse

from ipu_conformance.workloads import command


def configure(parser: argparse.ArgumentParser) -> None:
    """Add one action for each workload that has a model to use, with its own options."""
    command.add_workloads(parser, "infer")


def run(args: argparse.Namespace) -> int:
    """Activate the target and use the model."""
    return command.run("infer", args.workload, args)
