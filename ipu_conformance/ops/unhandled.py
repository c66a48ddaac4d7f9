"""Calls that an IPU build of Paddle does not take by its public sources: the emulator alone is asked for them.

The sources are the handlers of PaddlePaddle/Paddle, ``paddle/fluid/platform/device/ipu/popart_canonicalization``. Some
ops have none, and some handlers refuse an attribute or do not read it.
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


def _is_uneven(sample: Sample) -> bool:
    padding = sample.attributes["padding"]
    return padding == "SAME" or (padding != "VALID" and any(low != high for low, high in padding))


def _counts_padding(sample: Sample) -> bool:
    padding = sample.attributes["padding"]
    padded = padding == "SAME" or (padding != "VALID" and any(map(any, padding)))
    return padded and bool(sample.attributes["count_include_pad"])


def _has_windows(sample: Sample) -> bool:
    return any(size != 1 for size in sample.attributes["output_size"])


def _any_of(*rules: Callable[[Sample], bool]) -> Callable[[Sample], bool]:
    return lambda sample: any(rule(sample) for rule in rules)


def _has(name: str, *values: object) -> Callable[[Sample], bool]:
    return lambda sample: sample.attributes[name] in values


_POSITION = Unhandled(
    "its handler reads neither keepdims nor flatten (math_ops.cc)",
    lambda sample: bool(sample.attributes["keepdims"]) or sample.attributes["axis"] is None,
)

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
    "soft_cross_entropy_loss": Unhandled("its handler refuses soft labels (loss_ops.cc)"),
    "cross_entropy_of_probabilities": Unhandled("its handler does not read use_softmax (loss_ops.cc)"),
    "cross_entropy_loss": Unhandled(
        "an IPU build of Paddle has no handler for gather_nd, which looks up weights of classes",
        lambda sample: len(sample.inputs) > 2,
    ),
    "softplus": Unhandled(
        "its handler does not read beta (activation_ops.cc)", lambda sample: sample.attributes["beta"] != 1
    ),
    "conv": Unhandled(
        "there is no handler for conv3d, and that of conv2d takes four paddings in another order (nn_ops.cc)",
        _any_of(_is_volume, _is_uneven),
    ),
    "conv_transpose": Unhandled("an IPU build of Paddle has no handler for conv3d_transpose", _is_volume),
    "max_pool": Unhandled("an IPU build of Paddle has no handler for pool3d", _is_volume),
    "avg_pool": Unhandled(
        "there is no handler for pool3d, and that of pool2d does not read exclusive (nn_ops.cc)",
        _any_of(_is_volume, _counts_padding),
    ),
    "global_avg_pool": Unhandled("an IPU build of Paddle has no handler for pool3d", _is_volume),
    "adaptive_avg_pool": Unhandled("its handler takes the size 1 alone (nn_ops.cc)", _any_of(_is_volume, _has_windows)),
    "adaptive_max_pool": Unhandled("its handler takes the size 1 alone (nn_ops.cc)", _any_of(_is_volume, _has_windows)),
    "gather": Unhandled(
        "its handler does not read the axis (tensor_ops.cc)", lambda sample: sample.attributes["axis"] != 0
    ),
    "argmax": _POSITION,
    "argmin": _POSITION,
    "interpolate_linear": Unhandled(
        "its handler does not read align_mode (nn_ops.cc)", _has("coordinates", "asymmetric")
    ),
    "pad": Unhandled(
        "its handler refuses the modes replicate and circular (nn_ops.cc)", _has("mode", "replicate", "circular")
    ),
}  # fmt: skip
"""What is not taken, by op."""


def why_unhandled(op: str, framework: str, samples: Iterable[Sample]) -> str:
    """Why a framework's public sources do not take a call with these samples, empty if they do."""
    rule = UNHANDLED.get(op) if framework == FRAMEWORK else None
    return rule.reason if rule is not None and any(map(rule.when, samples)) else ""
