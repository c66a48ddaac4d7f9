"""Blocks: a model's marks for which operations belong together, and on which IPU they run.

While a model is captured, the block and the name scope of the moment are written into the tracer's metadata, so that
every operation carries its ``Mark``. Outside a capture blocks do nothing.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Dict, Iterator, List, Optional, Tuple, Type, TypeVar, Union

import torch
from torch.fx import Node
from torch.fx import traceback as fx_traceback

from ipu_conformance.emulator.poptorch.options.diagnostics import Error
from ipu_conformance.emulator.poptorch.refusals import placement as refusals

BLOCK, SCOPE, ATTRIBUTES = "poptorch_block", "poptorch_scope", "poptorch_attributes"
"""The keys of an operation's custom metadata: its ``Mark``, its name scopes, and its backend attributes."""
OPERATION, REGION = "poptorch_operation", "poptorch_region"
"""More keys: the name and settings of an operation of PopTorch itself, and the control flow that it is inside of."""

Function = TypeVar("Function", bound=Callable[..., Any])
Scope = TypeVar("Scope", bound="TagScope")
BlockId = Union[str, int]
"""What names a block; a number stands for its digits."""


@dataclass(frozen=True)
class Mark:
    """The block that an operation is in: how many blocks were begun before it, and what the user said of it."""

    order: int
    user_id: Optional[str] = None
    ipu_id: Optional[int] = None


BEFORE = Mark(-1)
"""The mark of operations before the first block; they are on IPU 0."""
OUTSIDE = Mark(-2)
"""The mark of operations after a closed block that are in no other."""


class _Forward:
    """The blocks of one call of a model while it is captured."""

    def __init__(self) -> None:
        self.current = BEFORE
        self.begun = 0
        self.auto_ids = False
        self.without_id = 0
        self.convolutions = 0
        """How many convolutions have been called."""
        self.values: Dict[str, Any] = {SCOPE: (), ATTRIBUTES: {}, OPERATION: None, REGION: ()}

    def begin(self, user_id: Optional[BlockId], ipu_id: Optional[int]) -> None:
        if user_id is None and self.auto_ids:
            user_id = self._automatic_id()
        self.current = Mark(self.begun, None if user_id is None else str(user_id), ipu_id)
        self.begun += 1
        self.write()

    def _automatic_id(self) -> str:
        self.without_id += 1
        return str(self.without_id - 1)

    def resume(self, mark: Mark) -> None:
        self.current = OUTSIDE if mark is BEFORE else mark
        self.write()

    def write(self) -> None:
        """Make operations from now on carry the current tags; earlier nodes keep their dictionaries."""
        custom = dict(fx_traceback.current_meta.get("custom", {}))
        custom.update({BLOCK: self.current, **self.values})
        fx_traceback.current_meta["custom"] = custom


_forwards: List[_Forward] = []


@contextlib.contextmanager
def new_forward() -> Iterator[None]:
    """One call of a model that is being captured: no block is active yet and automatic ids start again."""
    meta: Dict[str, Any] = fx_traceback.current_meta
    had, before = "custom" in meta, meta.get("custom")
    forward = _Forward()
    _forwards.append(forward)
    try:
        forward.write()
        yield
    finally:
        _forwards.pop()
        if had:
            meta["custom"] = before
        else:
            meta.pop("custom", None)


def current_forward() -> Optional[_Forward]:
    """The call that is being captured, None outside a capture."""
    return _forwards[-1] if _forwards else None


@contextlib.contextmanager
def tagged(key: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """Operations inside carry ``change`` of what they would carry under ``key``."""
    forward = current_forward()
    if forward is None:
        yield
        return
    before = forward.values[key]
    forward.values[key] = change(before)
    forward.write()
    try:
        yield
    finally:
        forward.values[key] = before
        forward.write()


class TagScope:
    """A context manager of the vendor's API: operations inside carry what ``_tag`` makes of the outer tag."""

    _key: ClassVar[str]

    def __init__(self) -> None:
        self._open: List[Any] = []

    def _tag(self, outer: Any) -> Any:
        raise NotImplementedError

    def __enter__(self: Scope) -> Scope:
        context = tagged(self._key, self._tag)
        context.__enter__()
        self._open.append(context)
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        self._open.pop().__exit__(type, value, traceback)


def tag_of(node: Node, key: str) -> Any:
    """What an operation carries under ``key``; None for an operation that the tracer added."""
    return node.meta.get("custom", {}).get(key)


def _check(user_id: Any, ipu_id: Any) -> None:
    refusals.BLOCK_ID(user_id=user_id)
    refusals.BLOCK_IPU(ipu_id=ipu_id)
    refusals.NEGATIVE_IPU(ipu_id=ipu_id)


def _begin(user_id: Optional[BlockId], ipu_id: Optional[int]) -> None:
    forward = current_forward()
    if forward is not None:
        forward.begin(user_id, ipu_id)


class Block(torch.nn.Module):
    """A block as a context manager: what is called inside belongs to it, and it ends with the ``with``."""

    def __init__(self, user_id: Optional[BlockId] = None, ipu_id: Optional[int] = None) -> None:
        super().__init__()
        _check(user_id, ipu_id)
        self._user_id = user_id
        self._ipu_id = ipu_id
        self._outer: List[Mark] = []

    def __enter__(self) -> Block:
        forward = current_forward()
        if forward is not None:
            self._outer.append(forward.current)
            forward.begin(self._user_id, self._ipu_id)
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        forward = current_forward()
        if forward is not None and self._outer:
            forward.resume(self._outer.pop())

    @staticmethod
    def start(user_id: Optional[BlockId] = None, ipu_id: Optional[int] = None) -> None:
        """Begin a block that lasts until the next one begins."""
        _check(user_id, ipu_id)
        _begin(user_id, ipu_id)

    @staticmethod
    def useAutoId() -> None:
        """Give blocks without an id, from here to the end of forward, the ids "0", "1" and so on."""
        forward = current_forward()
        if forward is not None:
            forward.auto_ids = True


def BlockFunction(user_id: Optional[BlockId] = None, ipu_id: Optional[int] = None) -> Callable[[Function], Function]:
    """A decorator: what the function calls belongs to a block that ends when the function returns."""
    _check(user_id, ipu_id)

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]

    return decorate


class _BlockBegun:
    """Mixed into the class of a layer by BeginBlock: calling the layer begins the block first."""

    _poptorch_block: Tuple[Optional[BlockId], Optional[int]]
    _poptorch_class: Type[torch.nn.Module]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _begin(*self._poptorch_block)
        return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The mixed class is made on the fly and cannot be found by name.
        return restored, (self._poptorch_class,), self.__dict__


_begun_classes: Dict[Type[torch.nn.Module], Type[torch.nn.Module]] = {}


def begun_class(original: Type[torch.nn.Module]) -> Type[torch.nn.Module]:
    """The class of layers of a class that begin a block."""
    if original not in _begun_classes:
        names = {"__module__": original.__module__, "__qualname__": original.__qualname__}
        attributes = {"_poptorch_class": original, **names}
        _begun_classes[original] = type(original.__name__, (_BlockBegun, original), attributes)
    return _begun_classes[original]


def restored(original: Type[torch.nn.Module]) -> torch.nn.Module:
    """A layer without state that begins a block, of a class of modules."""
    if not issubclass(original, torch.nn.Module):
        raise TypeError(f"{original} begins no block: it is no class of modules")
    module: torch.nn.Module = object.__new__(begun_class(original))
    return module


def BeginBlock(layer_to_call: Any, user_id: Optional[BlockId] = None, ipu_id: Optional[int] = None) -> Any:
    """Begin a block whenever a layer is called; the block lasts until the next one begins.

    A module is changed in place and returned; another callable is wrapped in a module.
    """
    _check(user_id, ipu_id)
    if isinstance(layer_to_call, _BlockBegun):
        raise Error(
            f"module has already been assigned to a block: {layer_to_call._poptorch_block[0]!r} on IPU "
            f"{layer_to_call._poptorch_block[1]}; call poptorch.removeBlocks first to assign it again"
        )
    if isinstance(layer_to_call, torch.nn.Module):
        original = type(layer_to_call)
        layer_to_call.__class__ = begun_class(original)
        object.__setattr__(layer_to_call, "_poptorch_block", (user_id, ipu_id))
        return layer_to_call
    if not callable(layer_to_call):
        raise Error(
            f"{layer_to_call!r} was given to BeginBlock: module is not an instance of torch.nn.Module or function"
        )
    return LegacyBeginBlockFn(layer_to_call, user_id, ipu_id)


class LegacyBeginBlockFn(torch.nn.Module):
    """A module around a layer: calling it begins a block, which lasts until the next one begins."""

    def __init__(self, layer_to_call: Any, user_id: Optional[BlockId] = None, ipu_id: Optional[int] = None) -> None:
        super().__init__()
        _check(user_id, ipu_id)
        self._user_id, self._ipu_id = user_id, ipu_id
        self._layer_to_call = layer_to_call

    def __call__(self, *input: Any, **kwargs: Any) -> Any:
        _begin(self._user_id, self._ipu_id)
        return self._layer_to_call(*input, **kwargs)


def removeBlocks(module: torch.nn.Module) -> None:
    """Take back every BeginBlock of a module and of the modules inside it."""
    if not isinstance(module, torch.nn.Module):
        raise AssertionError(f"{module!r} was given to removeBlocks: use a torch.nn.Module")
    for layer in module.modules():
        if isinstance(layer, _BlockBegun):
            layer.__class__ = layer._poptorch_class
            object.__delattr__(layer, "_poptorch_block")


def module_repr(m: torch.nn.Module) -> str:
    """The representation of a module, with the block that each layer begins."""
    if not isinstance(m, torch.nn.Module):
        raise AssertionError(f"{m!r} was given to module_repr: use a torch.nn.Module")
    extra = m.extra_repr()
    children = [f"({name}): {module_repr(child)}" for name, child in m.named_children()]
    if not children:
        return f"{_begun(m)}{m._get_name()}({extra})"
    lines = [*extra.splitlines(), *(line for child in children for line in child.splitlines())]
    inside = "".join(f"  {line}\n" for line in lines)
    return f"{_begun(m)}{m._get_name()}(\n{inside})"


def _begun(m: torch.nn.Module) -> str:
    block = getattr(m, "_poptorch_block", None)
    return "" if block is None else f"BeginBlock(user_id={block[0]}, ipu_id={block[1]}) "
