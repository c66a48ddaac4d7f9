"""Edges without a specified result: what lies outside an op's domain, and what the vendors leave open, with the reason.

A key is an edge ("nan"), the gradient at an edge ("gradient zeros"), or either on one framework ("paddle: nan").
An open call is still made: the device answers in the right shape and without failing.
"""

from __future__ import annotations

from typing import Dict, Mapping, Tuple

OUTSIDE: Mapping[str, Tuple[str, ...]] = {
    "bce_loss": ("zeros", "ties", "denormals", "large", "infinities", "nan"),
    "cross_entropy_of_probabilities": ("zeros", "ties", "denormals", "large", "infinities", "nan"),
    "cast_integer": ("bits",),
}
"""Probabilities lie between 0 and 1, and frameworks differ in how they keep the logarithm of 0 away.

NaN, infinities and numbers beyond the range of whole numbers are cast to none.
"""

EVERY_MAXIMUM = (
    "popnn hands the gradient of a pool to every element that equals the maximum, and shares it where it is told to "
    "(codelets/MaxPoolingGrad.cpp, MaxPoolingGradientScale.cpp)"
)
PRODUCT = "PopART multiplies the other factors (popx/op/reduceprodx.cpp); torch divides by one that may count as zero"

OPEN: Mapping[str, Mapping[str, str]] = {
    **{
        name: {f"gradient {edge}": EVERY_MAXIMUM for edge in ("zeros", "ties")}
        for name in ("max_pool", "adaptive_max_pool", "global_max_pool")
    },
    "prod": {"poptorch: gradient denormals": PRODUCT},
    "gelu": {"poptorch: infinities": "no document has it; torch's vector kernels, which the emulator runs, have NaN"},
    "gru": {"paddle: gradient large": "popnn's gates saturate (lib/popnn/Gru.cpp); the emulator's kernel has NaN"},
}
"""What is open, by op; where several results are known, ``ops.latitude`` has them."""


def why_open(op: str, framework: str, direction: str, edge: str) -> str:
    """Why the result of an edge is open on a framework, empty if it is specified; an open output opens gradients."""
    rules: Mapping[str, str] = OPEN.get(op, {})
    words = (edge,) if direction == "forward" else (edge, f"gradient {edge}")
    keys = [key for word in words for key in (word, f"{framework}: {word}")]
    reasons: Dict[str, str] = {key: rules[key] for key in keys if key in rules}
    return next(iter(reasons.values()), "")
