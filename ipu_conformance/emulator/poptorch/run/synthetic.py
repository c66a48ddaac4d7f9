"""Synthetic data: what the device computes with and returns when nothing passes between it and the host."""

from __future__ import annotations

from typing import List, Sequence

import torch

from ipu_conformance.emulator.poptorch.run.outputs import Made


def inputs(tensors: Sequence[torch.Tensor], seed: int) -> List[torch.Tensor]:
    """Tensors of these shapes and types, drawn from the standard normal distribution.

    Integers and truth values are zero: as indices or labels, drawn ones could lie outside of what a model allows.
    """
    generator = torch.Generator().manual_seed(seed)
    made = []
    for tensor in tensors:
        if tensor.is_floating_point():
            # Drawn in float32, so that the seed means the same in every type.
            made.append(torch.randn(tensor.shape, generator=generator).to(tensor.dtype))
        else:
            made.append(torch.zeros(tensor.shape, dtype=tensor.dtype))
    return made


def unread(made: Made) -> Made:
    """The host's side of outputs that are never read back: zeros, where a vendor promises no value."""
    return [
        [{leaf: torch.zeros_like(value) for leaf, value in leaves.items()} for leaves in replica] for replica in made
    ]
