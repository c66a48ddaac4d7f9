"""Operations that change no value: they tell the compiler something about a tensor or about the code around it.

Each is an alias of its tensor that carries a name and settings in its metadata; outside a capture, the tensor itself.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.utils._pytree as pytree

from ipu_conformance.emulator.poptorch.compile import blocks, capture
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import OverlapMode
from ipu_conformance.emulator.poptorch.refusals import ops as refusals

REDUCTIONS = ("sum", "mean", "none")


def marked(name: str, tensor: torch.Tensor, **settings: Any) -> torch.Tensor:
    """The tensor, as the result of an operation of PopTorch."""
    refusals.TENSOR(name=name, value=tensor, kind=torch.Tensor)
    if not capture.is_capturing():
        return tensor
    with blocks.tagged(blocks.OPERATION, lambda _: (name, settings)):
        result: torch.Tensor = torch.ops.aten.alias.default(tensor)
    return result


def identity_loss(x: torch.Tensor, reduction: str) -> torch.Tensor:
    """Mark a tensor as the loss, reduced to its sum or mean or not at all; its gradient is one."""
    refusals.REDUCTION(reduction=reduction, known=REDUCTIONS)
    refusals.TENSOR(name="identity_loss", value=x, kind=torch.Tensor)
    if reduction == "none":
        loss = marked("identity_loss", x, reduction=reduction)
    else:
        with blocks.tagged(blocks.OPERATION, lambda _: ("identity_loss", {"reduction": reduction})):
            loss = x.sum() if reduction == "sum" else x.mean()
    capture.mark_loss(loss)
    return loss


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """Do nothing, on the device."""
    return marked("nop", tensor)


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Keep these values of a pipeline stage instead of computing them again in the backward pass."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return type(tensors[0])(recomputationCheckpoint(*tensors[0]))
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise ValueError("All inputs of poptorch.recomputationCheckpoint must be tensors, or one list or tuple of them")
    kept = tuple(marked("recomputationCheckpoint", tensor) for tensor in tensors)
    return kept[0] if len(kept) == 1 else kept


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """The share of an IPU's memory that the product or convolution behind a tensor may use in between."""
    share = available_memory_proportion
    refusals.MEMORY_PROPORTION(share=share)
    return marked("set_available_memory", tensor, proportion=float(share))


def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """Overlap the transfer of inputs with computation; their structure is kept."""
    return _overlap("set_overlap_for_input", input_tensors, mode)


def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """Overlap the transfer of outputs with computation; their structure is kept."""
    return _overlap("set_overlap_for_output", output_tensors, mode)


def _overlap(name: str, tensors: Any, mode: OverlapMode) -> Any:
    if not isinstance(mode, OverlapMode):
        raise Error(f"{mode!r} was given to poptorch.{name}: use a poptorch.OverlapMode")
    return pytree.tree_map(lambda tensor: marked(name, tensor, mode=mode.value), tensors)


def custom_op(
    inputs: Sequence[torch.Tensor],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Sequence[torch.Tensor],
    attributes: Optional[Dict[str, Any]] = None,
) -> List[torch.Tensor]:
    """Refuse: a custom operation is C++ code for the device, which the emulator cannot run."""
    for key, value in (attributes or {}).items():
        if not isinstance(key, str) or not key.isascii() or not _is_ascii(value):
            raise ValueError(
                f"The attribute {key!r} was given {value!r}: use an ASCII name, and a float, an int, an ASCII string "
                "or a list of one of them"
            )
    raise Error(
        f"The custom operation {domain}.{name} (version {domain_version}) cannot run on the emulator: it is C++ code "
        "for the device; write it with torch operations or run it in poptorch.CPU"
    )


class NameScope(blocks.TagScope):
    """Operations inside carry this name before their own."""

    _key = blocks.SCOPE

    def __init__(self, name: str) -> None:
        super().__init__()
        refusals.SCOPE_NAME(name=name)
        self.name = name

    def _tag(self, outer: Any) -> Any:
        return (*outer, self.name)


class Attribute(blocks.TagScope):
    """Operations inside carry these attributes on their way to the backend, each a dictionary of strings.

    A dictionary is joined to that of the scope around it; the innermost value of a key counts.
    """

    _key = blocks.ATTRIBUTES

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        for name, value in kwargs.items():
            if not isinstance(value, dict) or not all(isinstance(text, str) for item in value.items() for text in item):
                raise ValueError(f"The attribute {name} was given {value!r}: use a dictionary of strings")
        self.attributes = kwargs

    def _tag(self, outer: Any) -> Any:
        return {**outer, **{name: {**outer.get(name, {}), **value} for name, value in self.attributes.items()}}


_PLAIN: Tuple[type, ...] = (str, int, float)


def _is_ascii(value: Any) -> bool:
    texts = [item for item in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(item, str)]
    return _is_plain(value) and all(text.isascii() for text in texts)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, _PLAIN) for item in value) and len({type(item) for item in value}) <= 1
    return isinstance(value, _PLAIN)
