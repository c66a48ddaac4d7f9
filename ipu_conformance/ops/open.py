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

EVERY_MAXIMUM = "poplibs hands the gradient of a pool to every element that equals the maximum, or shares it among them"
SELECTS_NAN = "which of a number and NaN is larger: neither ONNX's nor the framework's page of the op says"
COMPOSED = "functions with kinks, whose slopes need not add up there; no public document found"
OVERFLOWS = "the formula on the framework's page overflows before the result does; no public document found"
NOT_A_NUMBER = "the formula on the framework's page has inf - inf, inf * 0 or 0 / 0 there; no public document found"
WEIGHTED = "whether a weight of zero times an infinity or NaN counts; no public document found"

_GRADIENT_OF_MAXIMA = {f"gradient {edge}": EVERY_MAXIMUM for edge in ("zeros", "ties")}

OPEN: Mapping[str, Mapping[str, str]] = {
    "relu": {"paddle: nan": SELECTS_NAN},
    "threshold": {"poptorch: nan": SELECTS_NAN, "tensorflow: nan": SELECTS_NAN},
    "hardshrink": {"nan": SELECTS_NAN},
    "softshrink": {"paddle: infinities": NOT_A_NUMBER},
    "silu": {"paddle: gradient large": NOT_A_NUMBER},
    "celu": {"paddle: gradient large": NOT_A_NUMBER},
    "log_sigmoid": {"paddle: infinities": NOT_A_NUMBER},
    "prelu": {f"tensorflow: gradient {edge}": COMPOSED for edge in ("zeros", "ties", "denormals")},
    "sign": {"poptorch: nan": "the sign of NaN: neither ONNX's nor torch's page of the op says"},
    "maximum": {"paddle: nan": "Paddle's page shows NaN as the second operand alone"},
    "minimum": {"paddle: nan": "Paddle's page shows NaN as the second operand alone"},
    "pow": {f"gradient {edge}": "it holds the logarithm of a base that is zero" for edge in ("zeros", "denormals")},
    "round": {"paddle: ties": "ONNX rounds a half to the even number, the host's kernel away from zero"},
    "sqrt": {f"paddle: {edge}": "the host's kernel forms it as x * rsqrt(x)" for edge in ("denormals", "infinities")},
    "floor_div": {
        "infinities": "the quotient of infinities is not promised to be rounded",
        **{f"gradient {edge}": COMPOSED for edge in ("zeros", "denormals")},
    },
    "trunc_div": {f"gradient {edge}": COMPOSED for edge in ("zeros", "denormals")},
    "trunc_mod": {f"gradient {edge}": COMPOSED for edge in ("zeros", "denormals")},
    "atan2": {"denormals": "the quotient of numbers that may count as zero has no direction"},
    "interpolate_linear": {"infinities": WEIGHTED, "nan": WEIGHTED},
    "max_pool": {"tensorflow: nan": SELECTS_NAN, "paddle: nan": SELECTS_NAN, **_GRADIENT_OF_MAXIMA},
    "softmax": {"tensorflow: infinities": NOT_A_NUMBER, "tensorflow: nan": SELECTS_NAN},
    "logsumexp": {"paddle: infinities": NOT_A_NUMBER},
    **{
        name: {
            "paddle: nan": SELECTS_NAN,
            **{
                f"paddle: gradient {edge}": "on Paddle's page of max each of equal elements gets the whole gradient"
                for edge in ("zeros", "ties")
            },
        }
        for name in ("min", "max")
    },
    "prod": {
        "gradient denormals": "it is formed by dividing by a denormal number",
        **{f"paddle: gradient {edge}": "it is formed by dividing by zero" for edge in ("zeros", "ties")},
    },
    "adaptive_max_pool": {
        **_GRADIENT_OF_MAXIMA,
        "paddle: infinities": "a kernel, in float16 the device's too, begins a maximum at the lowest finite number",
        "paddle: nan": SELECTS_NAN,
    },
    "global_max_pool": {"paddle: nan": SELECTS_NAN, **_GRADIENT_OF_MAXIMA},
    "gru": {"paddle: gradient large": OVERFLOWS},
    "dist": {"gradient large": "rounding makes ties, and which of them is the largest is open"},
    "soft_margin_loss": {"poptorch: large": OVERFLOWS},
    "cosine_embedding_loss": {"tensorflow: large": OVERFLOWS},
    "nll_loss": {"infinities": NOT_A_NUMBER, "paddle: nan": WEIGHTED},
    "poisson_nll_loss": dict.fromkeys(
        ("zeros", "ties", "denormals"), "what keeps the logarithm of 0 away vanishes in float16"
    ),
    "multi_margin_loss": {"infinities": NOT_A_NUMBER, "nan": SELECTS_NAN},
    "multilabel_soft_margin_loss": {"tensorflow: infinities": NOT_A_NUMBER},
    "rank_loss": {"tensorflow: infinities": NOT_A_NUMBER},
    "bce_with_logits_loss": {"poptorch: infinities": NOT_A_NUMBER, "tensorflow: infinities": NOT_A_NUMBER},
    "log_cosh_loss": {"infinities": NOT_A_NUMBER},
    "triplet_margin_loss": {"tensorflow: gradient large": OVERFLOWS},
    "weighted_bce_with_logits_loss": {
        "infinities": NOT_A_NUMBER,
        **{f"tensorflow: gradient {edge}": COMPOSED for edge in ("zeros", "ties", "denormals")},
    },
    **{
        name: {"paddle: nan": SELECTS_NAN}
        for name in ("hinge_loss", "squared_hinge_loss", "hinge_embedding_loss", "margin_ranking_loss")
    },
}
"""What is open, by op."""


def why_open(op: str, framework: str, direction: str, edge: str) -> str:
    """Why the result of an edge is open on a framework, empty if it is specified; an open output opens gradients."""
    rules: Mapping[str, str] = OPEN.get(op, {})
    words = (edge,) if direction == "forward" else (edge, f"gradient {edge}")
    keys = [key for word in words for key in (word, f"{framework}: {word}")]
    reasons: Dict[str, str] = {key: rules[key] for key in keys if key in rules}
    return next(iter(reasons.values()), "")
