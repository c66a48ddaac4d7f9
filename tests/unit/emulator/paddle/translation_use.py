"""One use of an op of Paddle's whose translation is compared, and the numbers that uses are fed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
from paddle.base.layer_helper import LayerHelper

Build = Callable[..., Any]


@dataclass(frozen=True)
class Use:
    """One use of an op: a function of variables, and the arrays that are fed to it."""

    name: str
    build: Build
    arrays: Tuple[np.ndarray, ...]

    def __str__(self) -> str:
        return self.name


def numbers(*shape: int, seed: int = 1) -> np.ndarray:
    """Different numbers around zero."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def shares(*shape: int, seed: int = 2) -> np.ndarray:
    """Different numbers between 0 and 1, both left out."""
    return np.random.default_rng(seed).uniform(0.1, 0.9, size=shape).astype(np.float32)


def above(low: float, *shape: int) -> np.ndarray:
    """Different numbers above a bound."""
    return (low + shares(*shape)).astype(np.float32)


def whole(high: int, *shape: int, seed: int = 3) -> np.ndarray:
    """Whole numbers from 0 to below a bound."""
    return np.random.default_rng(seed).integers(0, high, size=shape).astype(np.int64)


def truths(*shape: int, seed: int = 4) -> np.ndarray:
    """Truth values of both kinds."""
    return np.random.default_rng(seed).integers(0, 2, size=shape).astype(bool)


def raw(
    type: str, slots: Sequence[str] = ("X",), made: Sequence[str] = ("Out",), dtype: str = "", **attributes: Any
) -> Build:
    """A function that appends one op by its type; the first output is what it gives."""

    def build(*variables: Any) -> Any:
        helper = LayerHelper(type)
        kind = dtype or (variables[0].dtype if variables else "float32")
        outputs: Dict[str, List[Any]] = {slot: [helper.create_variable_for_type_inference(kind)] for slot in made}
        inputs = {slot: [variable] for slot, variable in zip(slots, variables)}
        helper.append_op(type=type, inputs=inputs, outputs=outputs, attrs=attributes)
        return outputs[made[0]][0]

    return build
