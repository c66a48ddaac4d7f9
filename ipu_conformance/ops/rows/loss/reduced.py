"""The reduction of a loss that a framework is asked for element by element."""

from __future__ import annotations

from typing import Any

from ipu_conformance.ops.row import Call


def reduced(values: Call, prefix: str = "") -> Call:
    """A call from one without reduction; ``prefix`` is that of the framework's sum and mean."""

    def ask(module: Any, *inputs: Any, reduction: str, **attributes: Any) -> Any:
        loss = values(module, *inputs, **attributes)
        if reduction == "none":
            return loss
        if reduction == "batchmean":
            return getattr(module, f"{prefix}sum")(loss) / inputs[0].shape[0]
        return getattr(module, prefix + reduction)(loss)

    return ask


def tf_reduced(values: Call) -> Call:
    """The same in TensorFlow."""
    return reduced(values, "reduce_")
