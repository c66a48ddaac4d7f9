"""What the workloads with Keras and with estimators share."""

from __future__ import annotations

import os


def expect_ipu_placement() -> None:
    """Keep TensorFlow from warning of each variable that a graph places on an IPU; call it before the import."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
