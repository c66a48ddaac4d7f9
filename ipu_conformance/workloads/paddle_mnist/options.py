"""The options that training and inference share."""

from __future__ import annotations

import argparse
from pathlib import Path

from ipu_conformance.workloads.paddle_mnist.places import FOLDER


def add_use_ipu(parser: argparse.ArgumentParser) -> None:
    """Add ``--use_ipu BOOL``: ``--use_ipu False`` means the same as ``--native``."""
    parser.add_argument(
        "--use_ipu",
        "--use-ipu",
        dest="native",
        type=_is_false,
        metavar="BOOL",
        help="False runs without any IPU API, as --native does (True)",
    )


def _is_false(word: str) -> bool:
    try:
        return {"true": False, "1": False, "yes": False, "false": True, "0": True, "no": True}[word.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{word!r} is neither True nor False") from None


def add_folder(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--folder DIR``."""
    parser.add_argument("--folder", type=Path, default=Path(FOLDER), metavar="DIR", help=f"{what} (./%(default)s)")
