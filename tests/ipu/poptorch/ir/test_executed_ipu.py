"""The dump that the vendor's API hands out, executed: it computes what the model returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check, interpreter

from .dumped import read


@pytest.mark.emulator
def test_a_difference_is_executed_as_it_was_computed() -> None:
    """The terms of a difference stand in the dump in their order; whole numbers are compared bit for bit."""
    import poptorch
    import torch

    class Difference(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = torch.nn.Parameter(torch.tensor([[5.0, -7.0, 11.0]]))

        def forward(self, x: Any) -> Any:
            return torch.relu(x * x - self.base)

    samples = torch.arange(-6.0, 6.0).reshape(4, 3)
    model = poptorch.inferenceModel(Difference())
    returned = model(samples).numpy()
    graph = read(model)
    held = {"base": np.array([[5.0, -7.0, 11.0]])}
    fed = {name: samples.numpy() for name in graph.inputs if name not in held}

    outcome = interpreter.execute(graph, {**held, **fed})

    (told,) = outcome.outputs.values()
    check.identical(actual=told[0, 0, 0].astype(np.float32), expected=returned, what="what the dump computes")
