"""How accumulated gradients become the one gradient of an update."""

from __future__ import annotations

import enum
from typing import Any

from ipu_conformance.emulator.tensorflow.run import machine

__all__ = ["GradientAccumulationReductionMethod"]


class GradientAccumulationReductionMethod(enum.Enum):
    """The sum, the mean, or a mean that is kept up while accumulating."""

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, method: Any) -> GradientAccumulationReductionMethod:
        """The member that is meant: itself, or its name in any case."""
        if isinstance(method, cls):
            return method
        if isinstance(method, str) and method.upper() in cls.__members__:
            return cls[method.upper()]
        names = ", ".join(f"'{name}'" for name in cls.__members__)
        raise ValueError(
            f"Cannot parse {method!r} as one of GradientAccumulationReductionMethod: use a member of it, or one of "
            f"{names}."
        )


METHODS = {
    GradientAccumulationReductionMethod.SUM: machine.SUM,
    GradientAccumulationReductionMethod.MEAN: machine.MEAN,
    GradientAccumulationReductionMethod.RUNNING_MEAN: machine.RUNNING_MEAN,
}
"""What the machines call each."""
