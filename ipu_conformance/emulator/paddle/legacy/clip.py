"""``paddle.fluid.clip``: clipping of gradients by its old names."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.paddle.legacy import table
from ipu_conformance.emulator.paddle.legacy.table import Old

_FUNCTIONS = table.functions(
    (
        Old("GradientClipByGlobalNorm", 'clip_norm, group_name="default_group"', "nn.ClipGradByGlobalNorm"),
        Old("GradientClipByNorm", "clip_norm", "nn.ClipGradByNorm"),
        Old("GradientClipByValue", "max, min=None", "nn.ClipGradByValue"),
    )
)


def __getattr__(name: str) -> Any:
    return _FUNCTIONS[name] if name in _FUNCTIONS else table.missing("paddle.fluid.clip", name)
