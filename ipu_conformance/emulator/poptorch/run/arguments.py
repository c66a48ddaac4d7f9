"""Containers of the user's own as arguments and outputs of models."""

from __future__ import annotations

import abc
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import torch
from torch.utils import _pytree as pytree


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
        raise AssertionError(f"{arg_parser!r} was given: a parser derives from poptorch.ICustomArgParser")
    known = arg_data_type in _parsers
    _parsers[arg_data_type] = arg_parser
    if not known:
        name = arg_data_type.__qualname__
        pytree.register_pytree_node(arg_data_type, _flatten, _unflatten, serialized_type_name=name)


def _flatten(container: Any) -> Tuple[List[torch.Tensor], _Original]:
    return list(_parsers[type(container)].yieldTensors(container)), _Original(container)


def _unflatten(tensors: Iterable[torch.Tensor], original: _Original) -> Any:
    return _parsers[type(original.container)].reconstruct(original.container, iter(tensors))
