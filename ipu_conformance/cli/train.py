"""``ipu-conformance train``: one of the workloads on a target, or natively as its own reference."""

from __future__ import annotations

import argparse

from ipu_conformance.workloads import command


def configure(parser: argparse.ArgumentParser) -> None:
    """Add one action for each workload, with its own options."""
    command.add_workloads(parser, "train")


def run(args: argparse.Namespace) -> int:
    """Activate the target and run the workload."""
    return command.run("train", args.workload, args)
