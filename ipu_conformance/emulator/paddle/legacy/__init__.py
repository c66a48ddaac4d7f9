"""``paddle.fluid``, the API of before Paddle 2.5: its names, as far as Paddle 2.6 still has what they named.

A program switches the layer on by importing it, which is logged once. Paddle has been dynamic by default since 2.0, so
that a Program needs ``paddle.enable_static()`` first, as in the releases that ran on IPUs.
"""

from __future__ import annotations

import logging
from typing import Any

import paddle
from paddle.base import core, framework, unique_name

from ipu_conformance.emulator.paddle.legacy import (
    clip,
    compiler,
    dygraph,
    initializer,
    io,
    layers,
    optimizer,
    regularizer,
    table,
)
from ipu_conformance.emulator.paddle.legacy.table import Old

__all__ = [
    "clip", "compiler", "core", "data", "dygraph", "embedding", "framework", "initializer", "io", "layers", "one_hot",
    "optimizer", "regularizer", "unique_name",
]  # fmt: skip

logging.getLogger("ipu_conformance.paddle").warning(
    "paddle.fluid is emulated by a legacy layer over Paddle %s", paddle.__version__
)

ROWS = (
    Old("data", 'name, shape, dtype="float32", lod_level=0', "static.data"),
    Old("embedding",
        "input, size, is_sparse=False, is_distributed=False, padding_idx=None, param_attr=None, dtype='float32'",
        "static.nn.embedding"),
    Old("one_hot", "input, depth, allow_out_of_range=False", "nn.functional.one_hot",
        {"input": "x", "depth": "num_classes"}, ("allow_out_of_range",)),
)  # fmt: skip
"""Names of the top that differ from those of ``layers``."""

_FUNCTIONS = table.functions(ROWS)
_ELSEWHERE = {
    "save": "static.save", "load": "static.load", "gradients": "static.gradients", "name_scope": "static.name_scope",
    "enable_dygraph": "disable_static", "disable_dygraph": "enable_static", "in_dygraph_mode": "in_dynamic_mode",
    "require_version": "utils.require_version", "global_scope": "static.global_scope",
    "scope_guard": "static.scope_guard", "WeightNormParamAttr": "static.WeightNormParamAttr",
    "enable_imperative": "disable_static", "disable_imperative": "enable_static",
    "device_guard": "static.device_guard", "ParamAttr": "ParamAttr", "Program": "static.Program",
}  # fmt: skip
"""Names that stand for the same thing at another place."""
_STOCK = table.forwarded("paddle.fluid", "paddle.base")


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name in _ELSEWHERE:
        return table.found(_ELSEWHERE[name])
    if name in ("save_dygraph", "load_dygraph"):
        return getattr(dygraph, name)
    return _STOCK(name)
