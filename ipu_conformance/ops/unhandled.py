"""Calls that an IPU build of Paddle does not take by its public sources: the emulator alone is asked for them.

The sources are the handlers of PaddlePaddle/Paddle, ``paddle/fluid/platform/device/ipu/popart_canonicalization``. Some
ops have none. What a handler refuses or does not read is written with other ops, or is not expressible on Paddle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, Iterable, Mapping

from ipu_conformance.oracle.sample import Sample

FRAMEWORK = "paddle"
IN_SPACE = 5
"""Dimensions of a batch of volumes."""


def _always(sample: Sample) -> bool:
    return True


@dataclass(frozen=True)
class Unhandled:
    """Why calls of an op are not taken, and of which it holds."""

    reason: str
    when: Callable[[Sample], bool] = _always

    @property
    def whole(self) -> bool:
        """Whether it holds of every call."""
        return self.when is _always


def _without(kinds: Mapping[str, str]) -> Dict[str, Unhandled]:
    return {op: Unhandled(f"an IPU build of Paddle has no handler for {kind}") for op, kind in kinds.items()}


def _is_volume(sample: Sample) -> bool:
    return sample.inputs[0].ndim == IN_SPACE


UNHANDLED: Mapping[str, Unhandled] = {
    **_without(
        {
            "celu": "celu", "diag": "diag_v2", "einsum": "einsum", "expm1": "expm1", "gather_nd": "gather_nd",
            "grid_sample": "grid_sampler", "gru": "rnn", "index_select": "index_select", "isfinite": "isfinite_v2",
            "isinf": "isinf_v2", "isnan": "isnan_v2", "kron": "kron", "logical_xor": "logical_xor", "lstm": "rnn",
            "nll_loss": "nll_loss", "pixel_shuffle": "pixel_shuffle", "roll": "roll", "scatter": "scatter",
            "scatter_add": "scatter_nd_add", "scatter_nd_add": "scatter_nd_add", "simple_rnn": "rnn",
            "slice_update": "set_value", "std": "size", "take_along_axis": "take_along_axis", "trace": "trace",
            "tril": "tril_triu", "triu": "tril_triu", "unfold": "unfold", "var": "size",
        }
    ),
    "soft_cross_entropy_loss": Unhandled(
        "its handler refuses soft labels (loss_ops.cc), and no source says how far what is written out may be off"
    ),
    "cross_entropy_of_probabilities": Unhandled(
        "its handler takes scores (loss_ops.cc), and no source says how far what is written out may be off"
    ),
    "cross_entropy_loss": Unhandled(
        "an IPU build of Paddle has no handler for gather_nd, which looks up weights of classes",
        lambda sample: len(sample.inputs) > 2,
    ),
    "conv": Unhandled("an IPU build of Paddle has no handler for conv3d", _is_volume),
    "conv_transpose": Unhandled("an IPU build of Paddle has no handler for conv3d_transpose", _is_volume),
    "max_pool": Unhandled("an IPU build of Paddle has no handler for pool3d", _is_volume),
    "avg_pool": Unhandled("an IPU build of Paddle has no handler for pool3d", _is_volume),
    "global_avg_pool": Unhandled("an IPU build of Paddle has no handler for pool3d", _is_volume),
    "adaptive_avg_pool": Unhandled("an IPU build of Paddle has no handler for pool3d", _is_volume),
}  # fmt: skip
"""What is not taken, by op."""


def why_unhandled(op: str, framework: str, samples: Iterable[Sample]) -> str:
    """Why a framework's public sources do not take a call with these samples, empty if they do."""
    rule = UNHANDLED.get(op) if framework == FRAMEWORK else None
    return rule.reason if rule is not None and any(map(rule.when, samples)) else ""
