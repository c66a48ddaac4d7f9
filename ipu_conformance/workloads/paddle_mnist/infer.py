"""``ipu-conformance infer paddle-mnist``: the digit in a picture, recognised with the saved model.

    python -m ipu_conformance.workloads.paddle_mnist.infer --img FILE

does the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ipu_conformance.workloads.paddle_mnist.options import add_folder, add_use_ipu
from ipu_conformance.workloads.paddle_mnist.places import check_model
from ipu_conformance.workloads.paddle_mnist.settings import NAME


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--img", type=Path, required=True, metavar="FILE", help="a picture of one digit")
    add_use_ipu(parser)
    add_folder(parser, "where the saved model is; the IR graph is drawn there")


def run(args: argparse.Namespace) -> int:
    """Recognise the digit, which is the last line."""
    from ipu_conformance.workloads.paddle_mnist import picture

    image = picture.read(args.img)
    check_model(args.folder)
    from ipu_conformance.workloads.paddle_mnist.inference import recognise

    found = recognise(image, args.folder, native=args.native)
    for drawing in found.drawings:
        print(f"Drew the IR graph to {drawing}")
    print(f"Recognised digit: {found.digit} (probability {found.probability:.4f})")
    return 0


if __name__ == "__main__":
    from ipu_conformance.cli import main

    sys.exit(main(["infer", NAME, *sys.argv[1:]]))
