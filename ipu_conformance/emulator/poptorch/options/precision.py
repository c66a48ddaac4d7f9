"""Options.Precision: floating-point behaviour of the device."""

from __future__ import annotations

from typing import Any, ClassVar, Mapping

import torch

from ipu_conformance.emulator.poptorch import enums
from ipu_conformance.emulator.poptorch.log import deprecated
from ipu_conformance.emulator.poptorch.options.values import OptionValues, Rule, Value

_FLOAT_TYPES = Rule(lambda value: value in (torch.float32, torch.float16), "torch.float32 or torch.float16")
_NO_EFFECT = "it has no effect any more; cast tensors explicitly instead"


class _PrecisionOptions(OptionValues):
    """Exceptions, rounding, and the type of partial results."""

    TABLE: ClassVar[Mapping[str, Value]] = {
        "enable_floating_point_exceptions": Value(False, (bool,)),
        "enable_stochastic_rounding": Value(False, (bool,)),
        "partials_type": Value(torch.float32, (torch.dtype,), _FLOAT_TYPES),
    }

    def enableFloatingPointExceptions(self, enabled: bool) -> _PrecisionOptions:
        """Whether an invalid operation, a division by zero or an overflow stops the run."""
        return self.set(enable_floating_point_exceptions=enabled)

    def enableStochasticRounding(self, enabled: bool) -> _PrecisionOptions:
        """Whether float16 results are rounded up or down at random, in proportion to the distance."""
        return self.set(enable_stochastic_rounding=enabled)

    def setPartialsType(self, dtype: torch.dtype) -> _PrecisionOptions:
        """The type in which matrix products and convolutions of float16 hold partial sums."""
        return self.set(partials_type=dtype)

    @deprecated("3.0", _NO_EFFECT)
    def halfFloatCasting(self, half_float_casting: enums.HalfFloatCastingBehavior) -> _PrecisionOptions:
        """Accept the old choice between float16 and float32 for mixed inputs."""
        self._check_not_frozen("halfFloatCasting")
        if not isinstance(half_float_casting, enums.HalfFloatCastingBehavior):
            raise AssertionError(f"{half_float_casting!r} was given: use a poptorch.HalfFloatCastingBehavior")
        return self

    @deprecated("3.0", _NO_EFFECT)
    def runningStatisticsAlwaysFloat(self, value: bool) -> _PrecisionOptions:
        """Accept the old choice of float32 for the running statistics of normalisation layers."""
        self._check_not_frozen("runningStatisticsAlwaysFloat")
        if not isinstance(value, bool):
            raise AssertionError(f"{value!r} was given: use True or False")
        return self

    def __deepcopy__(self, memo: Any) -> _PrecisionOptions:
        # A torch.dtype is one of a kind and cannot be copied by older versions of torch.
        memo.update({id(dtype): dtype for dtype in (torch.float32, torch.float16)})
        return super().__deepcopy__(memo)
