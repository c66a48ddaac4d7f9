"""Models whose blocks tests place, captured without a device."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from ipu_conformance.emulator.poptorch.compile import blocks, capture, placement
from ipu_conformance.emulator.poptorch.options import Options


class Chain(torch.nn.Module):
    """One addition for each IPU, in a block of its own; each also uses the first value."""

    def __init__(self, ipus: Sequence[int]) -> None:
        super().__init__()
        self.ipus = list(ipus)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x
        for number, ipu in enumerate(self.ipus):
            with blocks.Block(f"block{number}", ipu_id=ipu):
                x = x + first
        return x


def captured(model: torch.nn.Module) -> capture.Captured:
    """The graph of a model for one row of two numbers."""
    return capture.capture(model, (torch.ones(1, 2),), {})


def placed(model: torch.nn.Module, strategy: Any, training: bool = False, **options: Any) -> placement.Placement:
    """Where the operations of a model are, on a model of the device that takes any number of IPUs."""
    made = Options().useIpuModel(True).deviceIterations(options.pop("iterations", 64)).setExecutionStrategy(strategy)
    for name, value in options.items():
        getattr(made, name)(value)
    return placement.place(captured(model), made, training)
