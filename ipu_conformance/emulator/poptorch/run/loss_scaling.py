"""Automatic loss scaling: the scale doubles after every update until gradients come near the end of their range.

The gradients that matrix products and convolutions make are sorted into two bins, below and above a share of the
largest number of their type. Where more than a small proportion lies above, the scale is halved.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, ContextManager, Dict, List, Mapping, Optional, Sequence

import torch
from torch.fx import Node
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

TRACKED: Mapping[Any, int] = {aten.mm.default: 1, aten.bmm.default: 1, aten.convolution_backward.default: 2}
"""The operations of a backward pass whose results are sorted, with how many of their results."""

PRODUCTS = frozenset((
    "linear", "matmul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addbmm", "conv1d", "conv2d", "conv3d",
    "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "einsum", "tensordot", "bilinear",
))  # fmt: skip
"""The operations of a forward pass whose gradients are such results."""

LARGEST: Mapping[torch.dtype, float] = {torch.float32: torch.finfo(torch.float32).max, torch.float16: 65535.0}
"""The end of the range of each type; that of float16 is the vendor's."""
LARGEST_HALF_SCALE = 2.0**15

ENABLED = "automaticLossScalingSettings.enabled"
BIN_EDGE = "automaticLossScalingSettings.binEdgeLocation"
THRESHOLD = "automaticLossScalingSettings.thresholdUpperCountProportion"
DEFAULTS: Mapping[str, float] = {BIN_EDGE: 0.0625, THRESHOLD: 1e-7}


class FixedScale:
    """The scale that the optimizer has."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def begin(self, replicas: int) -> None:
        """Start a run."""

    def at(self, iteration: int) -> float:
        """The scale of a device iteration of the run."""
        return self.scale

    def watching(self, replica: int, iteration: int) -> ContextManager[Any]:
        """Surround a backward pass."""
        return contextlib.nullcontext()

    def end(self, iterations: int) -> None:
        """Finish a run of so many device iterations."""


class AutomaticScale(FixedScale):
    """The optimizer's scale times a factor that follows the gradients; the factor outlives runs and optimizers."""

    def __init__(self, settings: Mapping[str, Any], half: bool) -> None:
        super().__init__()
        self.edge = float(settings.get(BIN_EDGE, DEFAULTS[BIN_EDGE]))
        self.threshold = float(settings.get(THRESHOLD, DEFAULTS[THRESHOLD]))
        self.half = half
        """Whether weights or loss are in float16, which the scale then has to fit into."""
        self._factors = [1.0]
        self._counts: List[Dict[int, _Bins]] = []
        self._lock = threading.Lock()

    def begin(self, replicas: int) -> None:
        """Start a run with the factor that the last one ended with."""
        self._factors = self._factors[-1:]
        self._counts = [{} for _ in range(replicas)]

    def at(self, iteration: int) -> float:
        """The scale of a device iteration: all replicas have finished the gradients of the one before."""
        with self._lock:
            while len(self._factors) <= iteration:
                self._factors.append(self._next(len(self._factors) - 1))
        return self.scale * self._factors[iteration]

    def watching(self, replica: int, iteration: int) -> ContextManager[Any]:
        """Sort the gradients of a backward pass."""
        bins = self._counts[replica].setdefault(iteration, _Bins())
        return _Histogram(bins, self.edge)

    def end(self, iterations: int) -> None:
        """Keep the factor for the next run."""
        self.at(iterations)

    def _next(self, iteration: int) -> float:
        bins = [counts[iteration] for counts in self._counts if iteration in counts]
        above, below = sum(each.above for each in bins), sum(each.below for each in bins)
        factor = self._factors[-1] * (0.5 if above > self.threshold / (1 - self.threshold) * below else 2.0)
        return min(factor, LARGEST_HALF_SCALE / self.scale) if self.half else factor


class _Bins:
    def __init__(self) -> None:
        self.below = 0
        self.above = 0


class _Histogram(TorchDispatchMode):
    """Counts the elements of tracked results on either side of the edge."""

    def __init__(self, bins: _Bins, edge: float) -> None:
        super().__init__()
        self.bins = bins
        self.edge = edge

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Optional[Mapping[str, Any]] = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        results = result if isinstance(result, (list, tuple)) else (result,)
        for value in results[: TRACKED.get(function, 0)]:
            if isinstance(value, torch.Tensor) and value.dtype in LARGEST:
                above = int((value.abs() >= self.edge * LARGEST[value.dtype]).sum())
                self.bins.above += above
                self.bins.below += value.numel() - above
        return result


def is_enabled(options: Any) -> bool:
    """Whether the options ask for it, by their own name or by PopART's."""
    return bool(options.Training.auto_loss_scaling or options._popart.options.get(ENABLED))


def is_tracked(node: Node) -> bool:
    """Whether the gradients of an operation are looked at."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name.rpartition("::")[2] in PRODUCTS
