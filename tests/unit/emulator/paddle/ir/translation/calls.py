"""One call of an op of Paddle's whose translation is compared, and the arrays that calls are fed."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Tuple

import numpy as np
import paddle
from paddle.base.layer_helper import LayerHelper

Build = Callable[..., Any]


@dataclass(frozen=True)
class OpCall:
    """One call of an op: a function of variables, and the arrays that are fed to it."""

    name: str
    build: Build
    arrays: Tuple[np.ndarray, ...]

    def __str__(self) -> str:
        return self.name


def call(name: str, build: Build, *arrays: np.ndarray, **attributes: Any) -> OpCall:
    """A call of ``build`` on the variables that the arrays are fed to, and with the attributes."""
    return OpCall(name, functools.partial(build, **attributes), arrays)


def normals(*shape: int, seed: int = 1) -> np.ndarray:
    """Distinct numbers around zero."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def fractions(*shape: int, seed: int = 2) -> np.ndarray:
    """Distinct numbers between 0 and 1, both excluded."""
    return np.random.default_rng(seed).uniform(0.1, 0.9, size=shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 3) -> np.ndarray:
    """Whole numbers from 0 up to but excluding ``high``."""
    return np.random.default_rng(seed).integers(0, high, size=shape).astype(np.int64)


def truths(*shape: int, seed: int = 4) -> np.ndarray:
    """Truth values of both kinds."""
    return np.random.default_rng(seed).integers(0, 2, size=shape).astype(bool)


def raw(type: str, slots: str = "X", outputs: str = "Out", dtype: str = "", **attributes: Any) -> Build:
    """A function that appends one op by its type and returns its first output; slots are separated by spaces."""

    def build(*variables: Any) -> Any:
        helper = LayerHelper(type)
        kind = dtype or (variables[0].dtype if variables else "float32")
        inputs = {slot: [variable] for slot, variable in zip(slots.split(), variables)}
        written = {slot: [helper.create_variable_for_type_inference(kind)] for slot in outputs.split()}
        helper.append_op(type=type, inputs=inputs, outputs=written, attrs=attributes)
        return next(iter(written.values()))[0]

    return build


def linspace(*arguments: Any, **options: Any) -> Any:
    """``paddle.linspace`` without its warning about an attribute that it sets itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return paddle.linspace(*arguments, **options)
