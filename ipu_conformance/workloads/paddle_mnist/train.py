"""``python -m ipu_conformance.workloads.paddle_mnist.train`` does what ``ipu-conformance train paddle-mnist`` does."""

from __future__ import annotations

import sys

from ipu_conformance.workloads import command
from ipu_conformance.workloads.paddle_mnist import NAME

if __name__ == "__main__":
    sys.exit(command.main("train", NAME))
