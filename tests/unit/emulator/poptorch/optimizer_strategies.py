"""Optimizers, and weights with gradients for them, as hypothesis draws them."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import torch
from hypothesis import strategies as st

numbers = st.floats(0.0, 0.9, allow_nan=False)
rates = st.floats(1e-4, 0.5, allow_nan=False)
betas = st.tuples(st.floats(0.0, 0.99), st.floats(0.5, 0.9999))


@st.composite
def arguments(draw: st.DrawFn, kind: str) -> Dict[str, Any]:
    """Arguments of torch's constructor for one kind of optimizer; what torch dampens is not what PopART does."""
    chosen: Dict[str, Any] = {"lr": draw(rates), "weight_decay": draw(st.sampled_from([0.0, 0.01, 0.3]))}
    chosen["maximize"] = draw(st.booleans())
    if kind == "sgd":
        chosen["momentum"] = draw(st.sampled_from([0.0, 0.5, 0.9]))
        chosen["nesterov"] = draw(st.booleans()) and chosen["momentum"] > 0
    elif kind == "rmsprop":
        chosen.update(alpha=draw(numbers), eps=draw(st.sampled_from([1e-8, 1e-3])), centered=draw(st.booleans()))
        chosen["momentum"] = draw(st.sampled_from([0.0, 0.7]))
    else:
        chosen.update(betas=draw(betas), eps=draw(st.sampled_from([1e-8, 1e-3])))
    return chosen


def tensors(seed: int, count: int) -> Tuple[Dict[str, torch.nn.Parameter], List[Dict[str, torch.Tensor]]]:
    """Three weights, and ``count`` sets of gradients for them, all distinct."""
    random = np.random.Generator(np.random.Philox(seed))
    shapes = {"first": (3, 2), "second": (4,), "third": ()}

    def drawn(shape: Tuple[int, ...]) -> torch.Tensor:
        return torch.tensor(random.standard_normal(shape), dtype=torch.float32)

    weights = {name: torch.nn.Parameter(drawn(shape)) for name, shape in shapes.items()}
    return weights, [{name: drawn(shape) for name, shape in shapes.items()} for _ in range(count)]
