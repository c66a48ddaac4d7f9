"""``ipu-conformance infer paddle-mnist``: the digit in a picture, recognised with the saved model.

    python -m ipu_conformance.workloads.paddle_mnist.infer --img FILE

does the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ipu_conformance.workloads import WorkloadError, command
from ipu_conformance.workloads.paddle_mnist import MODEL_FILES, NAME, add_folder, add_use_ipu, model_folder


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--img", type=Path, required=True, metavar="FILE", help="a picture of one digit")
    add_use_ipu(parser)
    add_folder(parser, "where the saved model is; the IR graph is drawn there")


def run(args: argparse.Namespace) -> int:
    """Recognise the digit, which is the last line."""
    from ipu_conformance.workloads.paddle_mnist.digits import read_picture

    image = read_picture(args.img)
    check_model(args.folder)
    from ipu_conformance.workloads.paddle_mnist.saved_model import recognise

    recognised = recognise(image, args.folder, native=args.native)
    for drawing in recognised.drawings:
        print(f"Drew the IR graph to {drawing}")
    print(f"Recognised digit: {recognised.digit} (probability {recognised.probability:.4f})")
    return 0


def check_model(folder: Path) -> None:
    """Refuse a folder without a model before Paddle is imported."""
    missing = [name for name in MODEL_FILES if not (model_folder(folder) / name).is_file()]
    if missing:
        raise WorkloadError(
            f"{model_folder(folder)} has no {' and no '.join(missing)}; train first with "
            f"`ipu-conformance train paddle-mnist --folder {folder}`, or name another --folder"
        )


if __name__ == "__main__":
    sys.exit(command.main("infer", NAME))
