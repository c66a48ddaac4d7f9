"""``PipelineStage``: the layers that are called inside belong to one stage of a pipeline."""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.refusals import keras as refusals

MARK, USED, NESTED = "_ipu_pipeline_stage", "_ipu_uses_stages", "_ipu_nested_stages"
MADE = "_ipu_made_in_stage"
"""Where a layer keeps the stage in whose scope it was made, which is that of its calls outside of scopes."""


Nested = Dict[Tuple[int, int], Union[None, int, Any]]
"""The stages inside one call of a model, by layer and number of its call; those of a model inside are nested again."""


class _Entered(threading.local):
    def __init__(self) -> None:
        self.stages: List[int] = []
        self.building: Any = None


_entered = _Entered()


class PipelineStage:
    """A scope in which layers that are made, and calls of layers, are assigned to a pipeline stage; it does not nest.

    The stage of a call comes before that of its layer.
    """

    def __init__(self, stage: int) -> None:
        refusals.STAGE_NUMBER(stage=stage)
        self._stage = stage

    def __enter__(self) -> PipelineStage:
        from ipu_conformance.emulator.tensorflow.run import strategy  # it imports Keras' part of this front end

        refusals.STAGE_WITHOUT_SCOPE(strategy=strategy.current())
        refusals.NESTED_STAGE(entered=_entered.stages)
        _entered.stages.append(self._stage)
        caller = library.call_context().layer or _entered.building
        if caller is not None:
            # A subclassed model tells only by being called that it has stages.
            caller.__dict__[USED] = True
        return self

    def __exit__(self, _exception_type: object, _value: object, _traceback: object) -> None:
        _entered.stages.pop()


def current() -> Optional[int]:
    """The stage whose scope is entered."""
    return _entered.stages[-1] if _entered.stages else None


@contextlib.contextmanager
def building(model: Any) -> Iterator[None]:
    """Inside, a model calls itself to be built; Keras keeps no record of that call."""
    before, _entered.building = _entered.building, model
    try:
        yield
    finally:
        _entered.building = before


def used_by(model: Any) -> bool:
    """Whether a model entered a stage when it was called, or has layers that were made in one."""
    return bool(model.__dict__.get(USED, False)) or any(MADE in layer.__dict__ for layer in model._flatten_layers())


def of_node(node: Any) -> Optional[int]:
    """The stage of one call of a layer."""
    stage: Optional[int] = getattr(node, MARK, None)
    return stage


def nested_of(node: Any) -> Optional[Nested]:
    """The stages of the layers inside one call of a model, None where the call has one stage or none."""
    nested: Optional[Nested] = getattr(node, NESTED, None)
    return nested


def assign(node: Any, stage: Union[None, int, Nested]) -> None:
    """Set the stage of one call of a layer, or the stages inside that of a model; None takes it back."""
    nested = isinstance(stage, dict)
    setattr(node, MARK, None if nested else stage)
    setattr(node, NESTED, stage if nested else None)


def mark_nodes() -> None:
    """Make Keras record for every call of a layer the stage whose scope it, or else the layer, was made in."""
    node = library.module("engine.node").Node
    layer = library.module("engine.base_layer").Layer
    own, make = node.__init__, layer.__init__
    if getattr(own, MARK, False):
        return

    @functools.wraps(own)
    def init(self: Any, *arguments: Any, **settings: Any) -> None:
        own(self, *arguments, **settings)
        stage = current()
        if stage is None:
            stage = self.layer.__dict__.get(MADE)
        if stage is not None and not self.is_input:
            setattr(self, MARK, stage)

    @functools.wraps(make)
    def layer_init(self: Any, *arguments: Any, **settings: Any) -> None:
        make(self, *arguments, **settings)
        if current() is not None:
            self.__dict__[MADE] = current()

    setattr(init, MARK, True)
    node.__init__, layer.__init__ = init, layer_init
