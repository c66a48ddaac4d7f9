"""From the tensors of a call to the micro-batches of every replica: narrowed, checked and dealt out as views."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

import torch

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core import streams
from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.options.enums import CommGroupType
from ipu_conformance.emulator.poptorch.refusals import models as refusals
from ipu_conformance.emulator.poptorch.run.wide import in_32_bits

MicroBatch = Tuple[torch.Tensor, ...]

_GROUPED_BY = {CommGroupType.Consecutive: streams.CONSECUTIVE, CommGroupType.Orthogonal: streams.ORTHOGONAL}
_NARROW = {torch.float64: torch.float32, torch.bfloat16: torch.float32}


def layout_of(options: Any) -> streams.Layout:
    """The factors of a combined batch that the options give."""
    try:
        return streams.Layout(
            options.device_iterations,
            options.Training.gradient_accumulation,
            options.replication_factor,
            options.input_group_size,
            _GROUPED_BY[options.input_group_type],
        )
    except streams.StreamError as error:
        raise Error(str(error)) from error


def device_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which a value of the host lives on the device; integers keep the type that kernels ask for."""
    return _NARROW.get(dtype, dtype)


def narrowed(value: torch.Tensor) -> torch.Tensor:
    """What arrives on the device: 32 bits of 64. Integers keep their type, for kernels that want 64 bits as indices."""
    if value.dtype == torch.int64:
        return in_32_bits(value)
    if value.dtype == torch.float64:
        return faults.at("numerics.narrow", value.to(torch.float32), exact=value)
    return value.to(device_type(value.dtype))


class Feed:
    """Deals the tensors of a call to the slots; the positions are computed once."""

    def __init__(self, layout: streams.Layout, tensors: Sequence[torch.Tensor]) -> None:
        self.layout = layout
        self.sizes: List[Optional[int]] = [self._micro_size(tensor) for tensor in tensors]
        self.copied: FrozenSet[int] = frozenset()
        """The inputs that the model writes into: it gets copies of its own, which go back when the run is over."""
        self._copies: Dict[int, torch.Tensor] = {}
        self._positions = layout.positions().tolist()

    def _micro_size(self, tensor: torch.Tensor) -> Optional[int]:
        """The size of a micro-batch, None for a scalar, which is a micro-batch as it is."""
        dim = tensor.shape[0] if tensor.dim() else None
        refusals.ZERO_SIZED(what="an input", shape=tuple(tensor.shape))
        refusals.INPUT_TYPE(dtype=tensor.dtype)
        try:
            size = self.layout.micro_batch_size(dim)
        except streams.StreamError as error:
            raise AssertionError(str(error)) from error
        return None if dim is None else size

    def deal(self, tensors: Sequence[torch.Tensor]) -> List[List[MicroBatch]]:
        """The micro-batches by [replica][micro-batch of that replica]; all are views."""
        # An input that has a gradient on the host has none on the device.
        inputs = [narrowed(tensor.detach()) for tensor in tensors]
        self._copies = {number: inputs[number].clone() for number in self.copied}
        for number, copy in self._copies.items():
            inputs[number] = copy
        split = [(tensor,) if size is None else tensor.split(size) for tensor, size in zip(inputs, self.sizes)]
        for number in self._copies:
            # Not views to autograd: what is written into one micro-batch may have a gradient.
            split[number] = tuple(part.detach() for part in split[number])
        rows: List[MicroBatch] = list(zip(*split)) if split else [()] * self.layout.inputs
        return [[rows[position] for position in fed] for fed in self._positions]

    def write_back(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give the caller what the model has written into its inputs."""
        for number, copy in self._copies.items():
            tensors[number].detach().copy_(copy)
        self._copies = {}

    def example(self, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        """The first micro-batch: what a model is captured with."""
        return [
            narrowed((tensor if size is None else tensor[:size]).detach()).clone()
            for tensor, size in zip(tensors, self.sizes)
        ]


def synthetic_inputs(tensors: Sequence[torch.Tensor], seed: int) -> List[torch.Tensor]:
    """Tensors of these shapes and types, drawn from the standard normal distribution.

    Integers and truth values are zero: as indices or labels, drawn ones could lie outside of what a model allows.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for tensor in tensors:
        if tensor.is_floating_point():
            # Drawn in float32, so that the seed means the same in every type.
            drawn.append(torch.randn(tensor.shape, generator=generator).to(tensor.dtype))
        else:
            drawn.append(torch.zeros(tensor.shape, dtype=tensor.dtype))
    return drawn
