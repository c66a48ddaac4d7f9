"""Ways for wrappers of Keras optimizers, strategies for several processes and buffered data sets to be wrong."""

from __future__ import annotations

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault, always, at
from ipu_conformance.emulator.faults.decisions import tensorflow_ops

POINT = tensorflow_ops.point


for _name, _rule, _area, _what, _answer in (
    ("loss-not-scaled", "loss-scaled", "update", "a loss is not multiplied by its factor", 1.0),
    ("gradients-stay-scaled", "unscaled", "update", "scaled gradients are applied", 1.0),
    ("buffers-not-whole", "whole-buffers", "streams", "a group that is not full is kept", False),
    ("strategy-never-reduces", "strategy-reduces", "reduce",
     "replicas of several processes keep their own gradients", False),
):  # fmt: skip
    faults.register(Fault(_name, _area, POINT, _what, at(_rule, always(_answer))), __name__)
