"""What a model was compiled for: the arguments of its first call, and whether those of a later one are alike."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import torch
import torch.utils._pytree as pytree

from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.refusals import models as refusals
from ipu_conformance.emulator.poptorch.run.arguments import in_order_of, know_containers


class LeafSpec(NamedTuple):
    """One leaf of an argument: the type and shape of a tensor, or the value of anything else."""

    dtype: Any
    shape: Any
    value: Any


class Call:
    """Arguments bound to the parameters of ``forward``, taken apart into tensors and constants."""

    def __init__(self, signature: inspect.Signature, args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.args, self.kwargs, self.arguments = bind(signature, args, kwargs)
        know_containers((self.args, self.kwargs))
        self._flatten()

    def _flatten(self) -> None:
        self.leaves, self.structure = pytree.tree_flatten((self.args, self.kwargs))
        self.places = [index for index, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]

    def order_as(self, template: Any) -> None:
        """Put the keys of dictionaries into the order of a template."""
        self.args, self.kwargs = in_order_of((self.args, self.kwargs), template)
        self._flatten()

    @property
    def tensors(self) -> List[torch.Tensor]:
        """The tensors in the order of the arguments."""
        return [self.leaves[place] for place in self.places]

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
        """The arguments with other tensors in the places of these."""
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return tuple(args), kwargs

    def leaf_specs(self) -> List[LeafSpec]:
        """What must stay the same in later calls."""
        return [_leaf_spec(leaf) for leaf in self.leaves]


def _leaf_spec(leaf: Any) -> LeafSpec:
    if isinstance(leaf, torch.Tensor):
        return LeafSpec(leaf.dtype, tuple(leaf.shape), None)
    return LeafSpec(None, None, leaf)


def bind(
    signature: inspect.Signature, args: Tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Tuple[Tuple[Any, ...], Dict[str, Any], Dict[str, Any]]:
    """The arguments as ``forward`` would see them, with its defaults; and by name."""
    parameters = signature.parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    takes_names = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if not takes_any:
        refusals.TOO_MANY_ARGUMENTS(names=[p.name for p in positional], number=len(args))
    names = {p.name for p in parameters}
    unknown = [] if takes_names else [name for name in kwargs if name not in names]
    if unknown:
        raise AssertionError(f"Unexpected argument {unknown[0]!r}: the model takes {', '.join(sorted(names))}")
    twice = [p.name for p in positional[: len(args)] if p.name in kwargs and p.kind is not p.POSITIONAL_ONLY]
    refusals.PASSED_TWICE(names=twice)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        names_given = {p.name for p in positional[: len(args)]} | set(kwargs)
        for parameter in parameters:
            needed = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if needed and parameter.default is parameter.empty and parameter.name not in names_given:
                raise Error(f"Mandatory parameter {parameter.name} missing") from error
        raise Error(str(error)) from error
    bound.apply_defaults()
    return bound.args, bound.kwargs, dict(bound.arguments)


class Expected:
    """The arguments that a model was compiled for."""

    def __init__(self, call: Call) -> None:
        self.structure = call.structure
        self._template = pytree.tree_map(lambda _: None, (call.args, call.kwargs))
        self.leaves = call.leaf_specs()
        self.arguments = {
            name: pytree.tree_flatten(value)[1] if not isinstance(value, torch.Tensor) else None
            for name, value in call.arguments.items()
        }

    def check(self, call: Call) -> None:
        """Raise Error for the first argument that differs from what the model was compiled for."""
        if call.structure != self.structure:
            call.order_as(self._template)
        if call.structure != self.structure:
            raise Error(self._difference(call))
        for place, (expected, leaf) in enumerate(zip(self.leaves, call.leaves)):
            if isinstance(leaf, torch.Tensor):
                if leaf.dtype != expected.dtype or leaf.shape != expected.shape:
                    raise Error(_changed_tensor(expected, leaf, self._name(call, place)))
            elif expected.dtype is not None or not _same(expected.value, leaf):
                raise Error(_changed_value(expected, leaf, self._name(call, place)))

    def _difference(self, call: Call) -> str:
        if set(call.arguments) != set(self.arguments):
            before, now = ", ".join(self.arguments), ", ".join(call.arguments)
            return f"Number of arguments mismatch: the model was compiled with {before} and is called with {now}"
        for name, value in call.arguments.items():
            spec = None if isinstance(value, torch.Tensor) else pytree.tree_flatten(value)[1]
            if spec != self.arguments[name]:
                return (
                    f"Type, length or keys of argument {name} changed since the model was compiled: it was "
                    f"{_structure(self.arguments[name])} and is {_structure(spec)}"
                )
        return "The structure of the arguments changed since the model was compiled"

    def _name(self, call: Call, place: int) -> str:
        count = 0
        for name, value in call.arguments.items():
            count += len(pytree.tree_leaves(value))
            if place < count:
                return name
        return f"number {place}"


def _structure(spec: Any) -> str:
    if spec is None:
        return "a tensor"
    kind = spec.type.__name__ if spec.type is not None else "a single value"
    return f"{kind} of {spec.num_leaves}" if spec.type is not None else kind


def _same(expected: Any, actual: Any) -> bool:
    if type(expected) is not type(actual):
        return False
    try:
        return bool(expected == actual)
    except Exception:
        return expected is actual


def _changed_tensor(expected: LeafSpec, leaf: torch.Tensor, name: str) -> str:
    if expected.dtype is None:
        return f"Type of argument {name} changed: the model was compiled with {expected.value!r}, not with a tensor"
    if leaf.dtype != expected.dtype:
        return f"Type of tensor {name} changed from {expected.dtype} to {leaf.dtype} since the model was compiled"
    return (
        f"Shape of tensor {name} changed from {list(expected.shape)} to {list(leaf.shape)} since the model was "
        "compiled: use the shape that it was compiled with or wrap the model again"
    )


def _changed_value(expected: LeafSpec, leaf: Any, name: str) -> str:
    if expected.dtype is not None:
        return f"Type of argument {name} changed: the model was compiled with a tensor, not with {leaf!r}"
    return (
        f"Value of argument {name} changed from {expected.value!r} to {leaf!r}: what is not a tensor is a constant of "
        "the compiled model"
    )
