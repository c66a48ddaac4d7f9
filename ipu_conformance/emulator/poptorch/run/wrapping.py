"""Wraps the user's model in place: whoever touches a weight that is newer on the device gets it copied first.

The model, its parameters and its buffers change their class; nothing else about them does. Outside of the wrapper they
are pickled and copied as what they were.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import types
import weakref
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Protocol, Tuple, Type

import torch

from ipu_conformance.emulator.poptorch.options.enums import CommGroupType, VariableRetrievalMode
from ipu_conformance.emulator.poptorch.refusals import models as refusals

_EXECUTOR = "_poptorch_executor"
_GROUPING = "_poptorch_replica_grouping"
_ORIGINAL = "_poptorch_original_class"


class Owner(Protocol):
    """The executor that holds the weights on the device."""

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Bring the weights to the host if the device has newer ones."""


class _Inside(threading.local):
    """Whether this thread is moving weights; touching one then moves nothing."""

    depth = 0


_inside = _Inside()


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Inside the block weights are read and written as they are on the host."""
    _inside.depth += 1
    try:
        with torch._C.DisableTorchFunctionSubclass():
            yield
    finally:
        _inside.depth -= 1


def _touch(held: Any) -> None:
    if _inside.depth:
        return
    reference = object.__getattribute__(held, "__dict__").get(_EXECUTOR)
    owner = reference() if reference is not None else None
    if owner is not None:
        _inside.depth += 1
        try:
            owner.copyWeightsToHostIfNeeded()
        finally:
            _inside.depth -= 1


def _touch_all(values: Any) -> None:
    for value in values:
        if isinstance(value, _Weight):
            _touch(value)
        elif isinstance(value, (list, tuple)):
            _touch_all(value)


class _Weight:
    """What parameters and buffers have in common while they are wrapped."""

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Mapping] = None
    ) -> Any:
        keywords = dict(kwargs or {})
        if not _inside.depth:
            _touch_all(args)
            _touch_all(keywords.values())
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **keywords)

    def __getattribute__(self, name: str) -> Any:
        if name not in _QUIET:
            _touch(self)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        _touch(self)
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        _touch(self)
        copied = copy.deepcopy(_plain(self), memo)
        memo[id(self)] = copied
        return copied

    def __repr__(self) -> str:
        _touch(self)
        return repr(_plain(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        _touch(self)
        return _plain(self).__reduce_ex__(protocol)


_QUIET = frozenset(("__class__", "__dict__", "replicaGrouping", "__torch_function__", "__deepcopy__", "__reduce_ex__"))
"""Attributes that do not depend on a weight's values; reading any other one copies them to the host."""


class IpuParameter(_Weight, torch.nn.Parameter):
    """A parameter of a wrapped model."""

    def replicaGrouping(
        self, comm_group_type: CommGroupType, shards: int, variable_retrieval_mode: VariableRetrievalMode
    ) -> None:
        """Give groups of replicas values of their own; the host holds them along a new first axis."""
        object.__getattribute__(self, "__dict__")[_GROUPING] = (comm_group_type, shards, variable_retrieval_mode)


class IpuBuffer(_Weight, torch.Tensor):
    """A buffer of a wrapped model."""


def _plain(weight: Any) -> torch.Tensor:
    """The same values in a parameter or tensor that was never wrapped."""
    with untouched():
        value = torch.Tensor.detach(weight)
        value = value.as_subclass(torch.Tensor)
        if isinstance(weight, IpuParameter):
            return torch.nn.Parameter(value, requires_grad=torch.Tensor.requires_grad.__get__(weight))
    return value


_WATCHED = frozenset(
    (
        "_parameters",
        "_buffers",
        "parameters",
        "named_parameters",
        "buffers",
        "named_buffers",
        "state_dict",
        "load_state_dict",
    )
)
"""The attributes through which a program reads a model's weights."""


class _Model:
    """What a wrapped model does in addition to its own class."""

    def __getattribute__(self, name: str) -> Any:
        if name in _WATCHED:
            _touch(self)
        return super().__getattribute__(name)

    def destroy(self) -> None:
        """Release the device and unwrap the model."""
        owner = trainer_of(self)
        if owner is not None:
            owner.destroy()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Bring the weights to the host if the device has newer ones, and return whether it had."""
        owner = trainer_of(self)
        return owner is not None and bool(owner.copyWeightsToHostIfNeeded())

    def __reduce_ex__(self, protocol: Any) -> Any:
        _touch(self)
        original = type(self)._poptorch_original  # type: ignore[attr-defined]
        state = {key: value for key, value in object.__getattribute__(self, "__dict__").items() if key != _EXECUTOR}
        return empty, (original,), state


def empty(original: Type[torch.nn.Module]) -> torch.nn.Module:
    """A module without state, of the class that was wrapped."""
    return object.__new__(original)


_classes: Dict[type, type] = {}


def _model_class(original: Type[torch.nn.Module]) -> type:
    if original not in _classes:
        attributes = {"_poptorch_original": original, "__module__": original.__module__, "__doc__": original.__doc__}
        # The metaclass of the user's class, whatever it is, makes the subclass.
        _classes[original] = types.new_class(
            f"Poptorch{original.__name__}", (_Model, original), {}, lambda body: body.update(attributes)
        )
    return _classes[original]


def trainer_of(model: torch.nn.Module) -> Optional[Any]:
    """The executor that wrapped the model, None if none did."""
    reference = object.__getattribute__(model, "__dict__").get(_EXECUTOR)
    return None if reference is None else reference()


def shallow(model: torch.nn.Module) -> torch.nn.Module:
    """A module with the attributes and weights of the model, of the class that it had before it was wrapped."""
    attributes = object.__getattribute__(model, "__dict__")
    copied = empty(type(model)._poptorch_original if isinstance(model, _Model) else type(model))  # type: ignore[attr-defined]
    copied.__dict__.update({name: value for name, value in attributes.items() if name != _EXECUTOR})
    return copied


def is_wrapped(model: torch.nn.Module) -> bool:
    """Whether a training model wraps this one."""
    return isinstance(model, _Model)


def wrap(model: torch.nn.Module, executor: Owner) -> None:
    """Change the classes of a model, its parameters and its buffers, so that ``executor`` hears of every touch."""
    reference = weakref.ref(executor)
    for buffer in model.buffers():
        refusals.BUFFER_TYPE(buffer=buffer, known=(torch.Tensor, IpuBuffer))
    for weight in _weights(model):
        parameter = isinstance(weight, torch.nn.Parameter)
        weight.__dict__.update({_EXECUTOR: reference, _ORIGINAL: type(weight)})
        weight.__class__ = IpuParameter if parameter else IpuBuffer
    model.__dict__[_EXECUTOR] = reference
    model.__class__ = _model_class(type(model))


def unwrap(model: torch.nn.Module) -> None:
    """Restore the original classes."""
    if not is_wrapped(model):
        return
    with untouched():
        model.__class__ = type(model)._poptorch_original
        model.__dict__.pop(_EXECUTOR, None)
        for weight in _weights(model):
            attributes = object.__getattribute__(weight, "__dict__")
            attributes.pop(_EXECUTOR, None)
            if isinstance(weight, _Weight):
                weight.__class__ = attributes.pop(_ORIGINAL)


def replica_grouping(weight: Any) -> Optional[Tuple[CommGroupType, int, VariableRetrievalMode]]:
    """How the replicas of a parameter are grouped, None for all alike."""
    grouping: Optional[Tuple[CommGroupType, int, VariableRetrievalMode]]
    grouping = object.__getattribute__(weight, "__dict__").get(_GROUPING)
    return grouping


def _weights(model: torch.nn.Module) -> Iterator[Any]:
    with untouched():
        weights = [*model.parameters(), *model.buffers()]
    yield from weights
