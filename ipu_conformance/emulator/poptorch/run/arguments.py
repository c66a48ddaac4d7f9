"""Containers of the user's own as arguments and outputs of models."""

from __future__ import annotations

import abc
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import torch
from torch.utils import _pytree as pytree

from ipu_conformance.emulator.poptorch.options.diagnostics import Error


class ICustomArgParser(abc.ABC):
    """Takes the tensors out of a container, and makes a container like it from other tensors."""

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterable[torch.Tensor]:
        """The tensors of the container, always in the same order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """A container like the original that holds the tensors of the iterator, taken in that order."""


_parsers: Dict[type, ICustomArgParser] = {}


class _Original:
    """The container that tensors were taken from; all of one class have the same structure to the compiler."""

    def __init__(self, container: Any) -> None:
        self.container = container

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Original) and type(self.container) is type(other.container)

    def __hash__(self) -> int:
        return hash(type(self.container))


def registerCustomArgParser(arg_data_type: type, arg_parser: ICustomArgParser) -> None:
    """Accept instances of a class as arguments and outputs of models; a later parser replaces an earlier one."""
    if not isinstance(arg_data_type, type):
        raise AssertionError(f"{arg_data_type!r} was given: a parser is registered for a class")
    if not isinstance(arg_parser, ICustomArgParser):
        raise Error(f"{arg_parser!r} was given: a parser derives from poptorch.ICustomArgParser")
    known = arg_data_type in _parsers
    _parsers[arg_data_type] = arg_parser
    if not known:
        name = arg_data_type.__qualname__
        pytree.register_pytree_node(arg_data_type, _flatten, _unflatten, serialized_type_name=name)


def know_containers(value: Any) -> None:
    """Let the compiler take apart every dictionary of a class of its own inside a nest of containers."""
    if isinstance(value, dict):
        kind = type(value)
        if kind not in pytree.SUPPORTED_NODES:
            pytree.register_pytree_node(kind, _items, _dictionary, serialized_type_name=f"{kind.__module__}.{kind}")
        for item in value.values():
            know_containers(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            know_containers(item)


def _items(container: Any) -> Tuple[List[Any], Tuple[type, Tuple[Any, ...]]]:
    return list(container.values()), (type(container), tuple(container))


def _dictionary(values: Iterable[Any], context: Tuple[type, Tuple[Any, ...]]) -> Any:
    kind, keys = context
    return kind(dict(zip(keys, values)))


def in_order_of(value: Any, template: Any) -> Any:
    """The value with the keys of its dictionaries in the order that they have in a template."""
    if isinstance(value, dict) and isinstance(template, dict) and set(value) == set(template):
        if type(value) is not type(template):
            return value
        ordered = {key: in_order_of(value[key], template[key]) for key in template}
        return ordered if type(value) is dict else type(value)(ordered)
    if type(value) in (list, tuple) and type(template) is type(value) and len(value) == len(template):
        return type(value)(in_order_of(item, like) for item, like in zip(value, template))
    return value


def _flatten(container: Any) -> Tuple[List[torch.Tensor], _Original]:
    return list(_parsers[type(container)].yieldTensors(container)), _Original(container)


def _unflatten(tensors: Iterable[torch.Tensor], original: _Original) -> Any:
    return _parsers[type(original.container)].reconstruct(original.container, iter(tensors))
