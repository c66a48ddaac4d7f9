"""The types of number that ops are asked in, and samples as a device holds them."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np

from ipu_conformance.oracle.sample import Sample

FORMATS: Mapping[str, Any] = {"float32": np.finfo(np.float32), "float16": np.finfo(np.float16)}
"""The floating-point types with their limits."""
DTYPES = (*FORMATS, "int32", "bool")

ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "neg",
    "abs",
    "sign",
    "maximum",
    "minimum",
    "square",
    "floor_div",
    "floor_mod",
    "sum",
    "max",
    "min",
    "cumsum",
)
COMPARED = (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "where",
)
LOGICAL = (
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "any",
    "all",
    "where",
)
MOVED = (
    "reshape",
    "transpose",
    "squeeze",
    "unsqueeze",
    "flatten",
    "tile",
    "expand",
    "flip",
    "roll",
    "gather",
    "index_select",
    "take_along_axis",
    "gather_nd",
    "scatter",
    "slice",
    "strided_slice",
    "split",
    "concat",
    "stack",
    "unstack",
    "triu",
    "tril",
    "cast",
)


def applies(dtype: str, op: str, floating: bool) -> bool:
    """Whether an op, which takes floating-point numbers or does not, is asked in a type."""
    if dtype == "int32":
        return op in ARITHMETIC or op in COMPARED or op in MOVED
    if dtype == "bool":
        return floating and (op in LOGICAL or op in MOVED)
    return floating or dtype == "float32"


def held(sample: Sample, dtype: str) -> Sample:
    """A sample as a device holds it: floating-point inputs rounded, or made whole numbers or truth values."""
    if dtype in FORMATS:
        return sample.rounded_to(dtype)
    whole = [_whole(x, dtype) if x.dtype.kind == "f" else x for x in sample.inputs]
    return Sample(tuple(whole), sample.attributes)


def _whole(x: np.ndarray, dtype: str) -> np.ndarray:
    """Whole numbers, none of them 0, which no one divides by; a positive number is true."""
    if dtype == "bool":
        return x > 0
    rounded = np.round(np.clip(np.nan_to_num(x), -1e3, 1e3) * 3).astype(np.int64)
    return np.where(rounded == 0, 1, rounded)
