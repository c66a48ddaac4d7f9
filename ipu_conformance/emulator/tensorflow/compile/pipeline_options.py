"""The names around a pipeline: schedules, options of stages, and what an optimizer function returns."""

from __future__ import annotations

import enum
from typing import Any, Dict, Optional, Sequence


class PipelineSchedule(enum.Enum):
    """In which order micro-batches pass the stages."""

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(enum.Enum):
    """What is recomputed rather than kept for the backward pass."""

    Auto = 0
    RecomputeThenBackpropagate = 1
    RecomputeAndBackpropagateInterleaved = 2


class OptimizerFunctionOutput:
    """What the optimizer function of a pipeline returns: an optimizer and the loss that it makes smaller."""

    def __init__(
        self,
        opt: Any,
        loss: Any,
        compute_gradients_args: Optional[Sequence[Any]] = None,
        compute_gradients_kwargs: Optional[Dict[str, Any]] = None,
        apply_gradients_args: Optional[Sequence[Any]] = None,
        apply_gradients_kwargs: Optional[Dict[str, Any]] = None,
        variables: Optional[Sequence[Any]] = None,
        tape: Any = None,
        gradient_capture_context: Any = None,
        captured_gradient_outfeed: Any = None,
    ) -> None:
        if not hasattr(opt, "apply_gradients"):
            raise TypeError(f"OptimizerFunctionOutput.opt is {opt!r}; it must be an optimizer.")
        if not hasattr(loss, "dtype"):
            raise TypeError(f"OptimizerFunctionOutput.loss is {loss!r}; it must be a tensor.")
        if gradient_capture_context is not None or captured_gradient_outfeed is not None:
            raise NotImplementedError(
                "Gradients cannot be captured on the emulator: leave gradient_capture_context and "
                "captured_gradient_outfeed out."
            )
        self.opt = opt
        self.loss = loss
        self.compute_gradients_args = tuple(compute_gradients_args or ())
        self.compute_gradients_kwargs = dict(compute_gradients_kwargs or {})
        self.apply_gradients_args = tuple(apply_gradients_args or ())
        self.apply_gradients_kwargs = dict(apply_gradients_kwargs or {})
        self.variables = list(variables or ())
        self.tape = tape


class PipelineStageOptions:
    """Options for the compiler of one stage; the emulator compiles nothing and only checks them."""

    def __init__(
        self,
        convolution_options: Optional[Dict[str, str]] = None,
        matmul_options: Optional[Dict[str, str]] = None,
        slice_options: Optional[Dict[str, str]] = None,
    ) -> None:
        self.convolution_options = _checked("convolution_options", convolution_options)
        self.matmul_options = _checked("matmul_options", matmul_options)
        self.slice_options = _checked("slice_options", slice_options)


def _checked(name: str, options: Optional[Dict[str, str]]) -> Dict[str, str]:
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"`{name}` is {options!r}; pass a dictionary of names and values.")
    return dict(options or {})
