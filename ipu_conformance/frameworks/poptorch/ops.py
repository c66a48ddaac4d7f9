"""Single ops on PopTorch: many calls in one module, whose one training step shows their outputs and gradients.

What is to be differentiated is added to a parameter of negative zeros, which changes no bit of it. One step of SGD at
the rate 1 then leaves minus the sum of the micro-batches' gradients in the parameter.
"""

from __future__ import annotations

import warnings
from typing import Any, Dict, Hashable, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import poptorch
import torch

from ipu_conformance.errors import Inexpressible
from ipu_conformance.frameworks import OpCall, OpResult


class _Output(NamedTuple):
    """What an output of a call is like, whichever values it has."""

    rank: int
    is_floating: bool


class _Calls(torch.nn.Module):
    """The calls side by side; the inputs of all of them arrive in one row, and one row of all factors behind them."""

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
        others: List[torch.Tensor] = [self.idle]
        for number, call in enumerate(self.calls):
            tensors = [next(arriving) if value.ndim else next(arriving).squeeze(0) for value in call.inputs[0]]
            for place in call.wanted:
                tensors[place] = tensors[place] + self.moved[f"{number}_{place}"]
            outputs = _sequence(call.ask(torch, *tensors, **call.attributes))
            # A loss function of torch that the module's loss leaves out is a second loss, which is refused.
            floating = weighted if call.factors else others
            for output, known in zip(outputs, _outputs(call)):
                if known.is_floating:
                    floating.append(output if known.rank == 1 else output.flatten())
            results.extend(outputs)
        loss = torch.cat(others).sum()
        if weighted:
            joined = torch.cat(weighted)
            loss = loss + torch.dot(joined, next(arriving).to(joined.dtype))
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
        returned = iter([value.detach().numpy() for value in trainer(*_fed(calls, dtype))[:-1]])
        trainer.copyWeightsToHost()
    finally:
        trainer.destroy()
    moved = {name: -value.detach().numpy() for name, value in module.moved.items()}
    results = []
    for number, call in enumerate(calls):
        # Micro-batches stand one behind the other along the first axis, as the samples of each do.
        parts = [_parts(value, known.rank, micro_batches) for known, value in zip(_outputs(call), returned)]
        results.append(OpResult(tuple(zip(*parts)), {place: moved[f"{number}_{place}"] for place in call.wanted}))
    return results


def _parts(value: np.ndarray, rank: int, count: int) -> List[np.ndarray]:
    """The part of a result that each micro-batch has made; one without an axis comes as a number of a row."""
    length = len(value) // count
    return [value[part] if not rank else value[part * length : (part + 1) * length] for part in range(count)]


def why_inexpressible(call: OpCall, dtype: str) -> Optional[str]:
    """Why torch cannot express a call; it is asked on the host."""
    try:
        _outputs(call)
    except Inexpressible as reason:
        return str(reason)
    return None


_OUTPUTS: Dict[Hashable, Union[Tuple[_Output, ...], Inexpressible]] = {}


def _outputs(call: OpCall) -> Tuple[_Output, ...]:
    """The outputs of a call, or Inexpressible; one of its structure is asked once, on the host."""
    key = call.structure
    if key not in _OUTPUTS:
        inputs = [_tensor(value, "float32") for value in call.inputs[0]]
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on a call, which the device's own capture leaves out too
            try:
                outputs = _sequence(call.ask(torch, *inputs, **call.attributes))
                _OUTPUTS[key] = tuple(_Output(output.dim(), output.is_floating_point()) for output in outputs)
            except Inexpressible as reason:
                _OUTPUTS[key] = reason
    known = _OUTPUTS[key]
    if isinstance(known, Inexpressible):
        raise known
    return known


def _fed(calls: Sequence[OpCall], dtype: str) -> List[torch.Tensor]:
    """The inputs of all calls in the module's order, then the factors; a micro-batch takes its part of the first axis.

    PopTorch divides the first axis of each input by itself, so an input keeps its own axes.
    """
    rows = [
        np.concatenate([np.atleast_1d(value) for value in values]) for call in calls for values in zip(*call.inputs)
    ]
    factors = [
        np.ravel(factor)
        for micro_batch in range(len(calls[0].inputs))
        for call in calls
        if call.factors
        for factor, known in zip(call.factors[micro_batch], _outputs(call))
        if known.is_floating
    ]
    return [_tensor(row, dtype) for row in [*rows, *([np.concatenate(factors)] if factors else [])]]


def _tensor(value: np.ndarray, dtype: str) -> torch.Tensor:
    tensor = torch.from_numpy(np.asarray(value, order="C"))
    return tensor.to(getattr(torch, dtype)) if value.dtype.kind == "f" else tensor


def _sequence(outputs: Any) -> Sequence[torch.Tensor]:
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)
