"""Single ops on PopTorch: many calls in one module, whose one training step shows their outputs and gradients.

What is to be differentiated is added to a parameter of negative zeros, which changes no bit of it. One step of SGD at
the rate 1 then leaves minus the sum of the micro-batches' gradients in the parameter.
"""

from __future__ import annotations

import warnings
from typing import Any, Dict, Hashable, List, Optional, Sequence, Tuple, Union

import numpy as np
import poptorch
import torch

from ipu_conformance.errors import Inexpressible
from ipu_conformance.frameworks import OpCall, OpResult


class _Calls(torch.nn.Module):
    """The calls side by side; the inputs of all of them arrive in one row, each with an axis for the micro-batch."""

    def __init__(self, calls: Sequence[OpCall], dtype: torch.dtype) -> None:
        super().__init__()
        self.calls = calls
        self.moved = torch.nn.ParameterDict(
            {
                f"{number}_{place}": torch.full(call.inputs[0][place].shape, -0.0, dtype=dtype)
                for number, call in enumerate(calls)
                for place in call.wanted
            }
        )
        self.idle = torch.nn.Parameter(torch.zeros(1, dtype=dtype))

    def forward(self, *flat: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        arriving = iter(flat)
        results: List[torch.Tensor] = []
        weighted: List[torch.Tensor] = []
        weights: List[torch.Tensor] = []
        others: List[torch.Tensor] = [self.idle]
        for number, call in enumerate(self.calls):
            tensors = [next(arriving).squeeze(0) for _ in call.inputs[0]]
            factors = [next(arriving).squeeze(0) for _ in (call.factors[0] if call.factors else ())]
            for place in call.wanted:
                tensors[place] = tensors[place] + self.moved[f"{number}_{place}"]
            outputs = _sequence(call.ask(torch, *tensors, **call.attributes))
            for place, output in enumerate(outputs):
                if output.is_floating_point() and factors:
                    weighted.append(output.flatten())
                    weights.append(factors[place].flatten().to(output.dtype))
                elif output.is_floating_point():
                    # A loss function of torch that the module's loss leaves out is a second loss, which is refused.
                    others.append(output.flatten())
            results.extend(output.unsqueeze(0) for output in outputs)
        loss = torch.cat(others).sum()
        if weighted:
            loss = loss + torch.dot(torch.cat(weighted), torch.cat(weights))
        return (*results, poptorch.identity_loss(loss, "sum"))


def run_ops(calls: Sequence[OpCall], dtype: str) -> Sequence[OpResult]:
    """Run calls of ops in one training step whose micro-batches are accumulated."""
    module = _Calls(calls, getattr(torch, dtype))
    micro_batches = len(calls[0].inputs)
    options = poptorch.Options()
    options.Training.gradientAccumulation(micro_batches)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    options.outputMode(poptorch.OutputMode.All)
    trainer = poptorch.trainingModel(module, options, torch.optim.SGD(module.parameters(), lr=1.0))
    try:
        returned = [value.detach().numpy() for value in trainer(*_fed(calls, dtype))[:-1]]
        trainer.copyWeightsToHost()
    finally:
        trainer.destroy()
    moved = {name: -value.detach().numpy() for name, value in module.moved.items()}
    results, first = [], 0
    for number, call in enumerate(calls):
        count = _outputs(call)
        assert isinstance(count, int)
        of_call = returned[first : first + count]
        first += count
        results.append(
            OpResult(
                tuple(tuple(value[micro_batch] for value in of_call) for micro_batch in range(micro_batches)),
                {place: moved[f"{number}_{place}"] for place in call.wanted},
            )
        )
    return results


def why_inexpressible(call: OpCall, dtype: str) -> Optional[str]:
    """Why torch cannot express a call; it is asked on the host."""
    outputs = _outputs(call)
    return outputs if isinstance(outputs, str) else None


_OUTPUTS: Dict[Hashable, Union[int, str]] = {}


def _outputs(call: OpCall) -> Union[int, str]:
    """How many outputs a call has, or why torch cannot express it; one of its structure is asked once, on the host."""
    key = call.structure
    if key not in _OUTPUTS:
        inputs = [_tensor(value, "float32") for value in call.inputs[0]]
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on a call, which the device's own capture leaves out too
            try:
                _OUTPUTS[key] = len(_sequence(call.ask(torch, *inputs, **call.attributes)))
            except Inexpressible as reason:
                _OUTPUTS[key] = str(reason)
    return _OUTPUTS[key]


def _fed(calls: Sequence[OpCall], dtype: str) -> List[torch.Tensor]:
    """The inputs and factors of all calls in the module's order, the micro-batches along the first axis."""
    rows: List[np.ndarray] = []
    for call in calls:
        rows.extend(np.stack(values) for values in zip(*call.inputs))
        rows.extend(np.stack(values) for values in zip(*call.factors))
    return [_tensor(row, dtype) for row in rows]


def _tensor(value: np.ndarray, dtype: str) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(value))
    return tensor.to(getattr(torch, dtype)) if value.dtype.kind == "f" else tensor


def _sequence(outputs: Any) -> Sequence[torch.Tensor]:
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)
