"""Aligning the optimizer's state with what the device keeps: a step count where Paddle keeps a power of beta1."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
from paddle.base import core

from ipu_conformance.emulator.faults.decisions import paddle_ir as decide
from ipu_conformance.emulator.paddle.compile.passes.compilation import Compilation

POWER = "Beta1Pow"


def align(record: Compilation, values: Mapping[str, Any]) -> None:
    """Replace every beta1 power on the host by the number of steps that it stands for."""
    folded = record.optimizer
    if folded is None or record.scope is None:
        return
    for slots in folded.states.values():
        variable = record.scope.find_var(slots[POWER]) if POWER in slots else None
        if variable is None or not variable.get_tensor()._is_initialized():
            continue
        tensor = variable.get_tensor()
        power = np.asarray(tensor)
        tensor.set(decide("steps", steps(power, float(folded.settings["beta1"])), power=power), core.CPUPlace())


def steps(power: np.ndarray, beta1: float) -> np.ndarray:
    """The number of steps after which beta1 has the given power: none while Paddle still holds beta1 itself.

    What is no power of a beta1 between 0 and 1 is a number of steps already, from a compilation before this one.
    """
    value = float(power.reshape(-1)[0])
    count = np.rint(np.log(value) / np.log(beta1)) - 1 if 0 < value < 1 and 0 < beta1 < 1 else value
    return np.full(power.shape, max(float(count), 0.0), dtype=power.dtype)
