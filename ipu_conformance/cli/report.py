"""``ipu-conformance report verify|merge|diff``: what can be done with the folders of qualifications."""

from __future__ import annotations

import argparse
from pathlib import Path

from ipu_conformance.report import folder as report_folder


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the actions of the command."""
    actions = parser.add_subparsers(metavar="action", required=True)
    action = actions.add_parser("verify", help="recompute digests, chain, list and verdict; name what was changed")
    action.add_argument("folder", type=Path, metavar="DIR", help="the folder of a qualification")
    action.add_argument("--digest", metavar="SHA256", help="the digest that the run said at its end")
    action.set_defaults(action=_verify)
    action = actions.add_parser("merge", help="join the reports of shards into one")
    action.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="the folder of a shard")
    action.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder for the whole report")
    action.set_defaults(action=_merge)
    action = actions.add_parser("diff", help="what changed between two reports; exit code 1 if results did")
    action.add_argument("before", type=Path, metavar="A", help="the folder of the earlier qualification")
    action.add_argument("after", type=Path, metavar="B", help="the folder of the later one")
    action.set_defaults(action=_diff)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    code: int = args.action(args)
    return code


def _verify(args: argparse.Namespace) -> int:
    from ipu_conformance.report.verification import complaints

    found = complaints(args.folder, args.digest)
    for complaint in found:
        print(complaint)
    if not found:
        verdict = report_folder.read_report(args.folder)["verdict"]
        print(f"{args.folder} is as it was sealed: {verdict['word']}, {verdict['covers']}")
    return 1 if found else 0


def _merge(args: argparse.Namespace) -> int:
    from ipu_conformance.report.merging import merge

    verdict = merge(args.folders, args.out)
    print("\n".join(report_folder.spoken(verdict, args.out)))
    return verdict.exit_code


def _diff(args: argparse.Namespace) -> int:
    from ipu_conformance.report.difference import difference

    found = difference(report_folder.read_report(args.before), report_folder.read_report(args.after))
    print("\n".join(found.lines))
    return 1 if found.results_differ else 0
