"""From the outputs of slots to what a call returns: the modes, the narrowed types and the model's own structure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, FrozenSet, List, Sequence, Tuple

import torch

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core import streams
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import OutputMode
from ipu_conformance.emulator.poptorch.refusals import models as refusals

SlotOutputs = Sequence[Sequence[Dict[int, torch.Tensor]]]
"""The leaves of the output, by replica, micro-batch and number of the leaf."""

_NARROW = {torch.int64: torch.int32, torch.float64: torch.float32}


def mode_of(options: Any, training: bool) -> Tuple[OutputMode, int]:
    """The output mode with its period; the default is Final for training and All for inference."""
    if options.output_mode == OutputMode.Default:
        return (OutputMode.Final if training else OutputMode.All), 1
    return options.output_mode, options.output_return_period


class Returned:
    """Selects and joins the leaves of one output mode."""

    def __init__(self, layout: streams.Layout, mode: OutputMode, period: int = 1) -> None:
        self.layout, self.mode, self.period = layout, mode, period
        self._selection = self._select()

    def _select(self) -> streams.Selection:
        try:
            return streams.poptorch_selection(self.layout, self.mode.name, self.period)
        except streams.StreamError as error:
            raise Error(str(error)) from error

    @property
    def sources(self) -> FrozenSet[Tuple[int, int]]:
        """The slots whose outputs are needed, as (replica, micro-batch)."""
        return frozenset((s.replica, s.micro_batch) for entry in self._selection.entries for s in entry)

    def join(self, slot_outputs: SlotOutputs, leaf: int) -> torch.Tensor:
        """One leaf of what a call returns: the selected micro-batches one after the other along dimension 0."""
        parts: List[torch.Tensor] = []
        for entry in self._selection.entries:
            value = slot_outputs[entry[0].replica][entry[0].micro_batch][leaf]
            for source in entry[1:]:
                value = value + slot_outputs[source.replica][source.micro_batch][leaf]
            parts.append(value)
        if parts[0].dim():
            return narrowed(torch.cat(parts))
        if len(parts) == 1:
            return narrowed(parts[0].clone())
        return narrowed(torch.stack(parts))


def unread(slot_outputs: SlotOutputs) -> SlotOutputs:
    """The host's side of outputs that are never read back: zeros, where a vendor promises no value."""
    return [
        [{leaf: torch.zeros_like(value) for leaf, value in leaves.items()} for leaves in replica]
        for replica in slot_outputs
    ]


def narrowed(value: torch.Tensor) -> torch.Tensor:
    """What leaves the device has 32 bits where the host has 64."""
    if value.dtype not in _NARROW:
        return value
    return faults.at("numerics.narrow", value.to(_NARROW[value.dtype]), exact=value)


class _RefusedBackward:
    """What ``backward`` of an output is: the gradient was taken on the device."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        refusals.BACKWARD()

    def __reduce__(self) -> Tuple[type, Tuple[()]]:
        # A saved output is loaded without this package too, so it holds nothing but a type that every loader trusts.
        return OrderedDict, ()


_REFUSED = _RefusedBackward()


def guarded(value: torch.Tensor) -> torch.Tensor:
    """The output, whose ``backward`` is an Error that explains why."""
    setattr(value, "backward", _REFUSED)  # noqa: B010 (typed torch declares a method here)
    return value
