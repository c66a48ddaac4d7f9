"""``python -m ipu_conformance.workloads.paddle_mnist.train`` does what ``ipu-conformance train paddle-mnist`` does."""

from __future__ import annotations

import sys

from ipu_conformance.cli import main
from ipu_conformance.workloads.paddle_mnist.settings import NAME

if __name__ == "__main__":
    sys.exit(main(["train", NAME, *sys.argv[1:]]))
