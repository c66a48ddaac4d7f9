"""CPU: a function that the host runs in the middle of a model on the device."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ipu_conformance.emulator.poptorch.compile import blocks, capture
from ipu_conformance.emulator.poptorch.ops import control_flow
from ipu_conformance.emulator.poptorch.options.diagnostics import Error

_numbers = itertools.count()
_operations: Dict[int, CPU] = {}
"""Every operation that a graph holds, for good: a program need not keep what it made inside ``forward``."""


class CPU:
    """A function of the host inside a model, known by its id; for inference only.

    It is called with the device's tensors each time that the device reaches it, and once, on tensors of the same
    shapes, while the model is compiled.
    """

    def __init__(self, layer_to_call: Callable[..., Any], ID: str) -> None:
        if not callable(layer_to_call):
            raise Error(f"{type(layer_to_call).__name__} was given to poptorch.CPU: use a function or a module")
        if not isinstance(ID, str) or not ID:
            raise Error(f"The id {ID!r} was given to poptorch.CPU: use a name")
        self._layer_to_call = layer_to_call
        self._ID = ID
        self._single = False
        self._described: List[Tuple[Tuple[int, ...], torch.dtype]] = []

    def registerPersistentData(self) -> None:
        """Keep the tensors of the operation from one call to the next; here every call has its own."""

    def execute(self, *inputs: torch.Tensor) -> Any:
        """Run the function on the host."""
        with torch.no_grad():
            return self._layer_to_call(*inputs)

    def __call__(self, *inputs: torch.Tensor) -> Union[torch.Tensor, List[torch.Tensor]]:
        if not all(isinstance(value, torch.Tensor) for value in inputs):
            raise Error(f"The CPU operation {self._ID} was called with an argument that is not a tensor: use tensors")
        if not capture.is_capturing():
            return self.execute(*inputs)
        number = next(_numbers)
        _operations[number] = self
        # The number in the graph finds this object again; a copy of the graph calls the same function.
        with blocks.tagged(blocks.REGION, lambda outer: (*outer, "CPU")):
            results = host_call(list(inputs), number, self._ID, control_flow.branch_taken())
        return results[0] if self._single else list(results)


def _outputs(operation: CPU, inputs: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    results = operation.execute(*inputs)
    operation._single = isinstance(results, torch.Tensor)
    listed = [results] if operation._single else list(results) if isinstance(results, (list, tuple)) else []
    if not listed or not all(isinstance(value, torch.Tensor) for value in listed):
        raise Error(f"The CPU operation {operation._ID} returned {type(results).__name__}: return a tensor or several")
    return listed


@torch.library.custom_op(
    "ipu_poptorch::host_call",
    mutates_args=(),
    schema="(Tensor[] inputs, int number, str name, Tensor? taken) -> Tensor[]",
)
def host_call(
    inputs: Sequence[torch.Tensor], number: int, name: str, taken: Optional[torch.Tensor]
) -> List[torch.Tensor]:
    """Run a function of the host; in a branch that is not taken, give zeros without calling it."""
    operation = _operations[number]
    if taken is not None and not bool(taken):
        return [torch.zeros(shape, dtype=dtype) for shape, dtype in operation._described]
    results = _outputs(operation, [value.detach().clone() for value in inputs])
    described = [(tuple(value.shape), value.dtype) for value in results]
    if described != operation._described:
        raise Error(f"The CPU operation {name} returned {described}, but {operation._described} when it was compiled")
    return [value.detach().clone() for value in results]


@host_call.register_fake
def _(inputs: Sequence[torch.Tensor], number: int, name: str, taken: Any) -> List[torch.Tensor]:
    operation = _operations[number]
    with torch._C.DisableTorchFunction(), unset_fake_temporarily():
        results = _outputs(operation, [torch.zeros(tuple(value.shape), dtype=value.dtype) for value in inputs])
        operation._described = [(tuple(value.shape), value.dtype) for value in results]
    return [torch.empty(shape, dtype=dtype) for shape, dtype in operation._described]
