"""Which layer belongs to which pipeline stage: read, set, reset and printed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, List, Optional, Sequence, Union

from ipu_conformance.emulator.tensorflow.keras import library, partition, stages
from ipu_conformance.emulator.tensorflow.refusals import keras as refusals


class _LayerPipelineStageAssignment:
    """One call of a layer and its stage, which may be changed before it is handed back."""

    def __init__(self, layer: Any, node_index: int, pipeline_stage: Optional[int] = None) -> None:
        self._layer = layer
        self._node_index = node_index
        self.pipeline_stage = pipeline_stage

    @property
    def layer(self) -> Any:
        """The layer that is called."""
        return self._layer

    @property
    def node_index(self) -> int:
        """Which of the layer's calls it is."""
        return self._node_index

    @property
    def inbound_layers(self) -> Any:
        """The layers whose outputs are read."""
        layers = self._layer._inbound_nodes[self._node_index].inbound_layers
        return list(layers) if isinstance(layers, (list, tuple)) else [layers]

    @property
    def is_nested_model(self) -> bool:
        """Whether what is called is a model itself."""
        return isinstance(self._layer, library.model_class())

    @property
    def pipeline_stage(self) -> Optional[int]:
        """The stage, None where the call is not assigned."""
        return self._pipeline_stage

    @pipeline_stage.setter
    def pipeline_stage(self, stage: Optional[int]) -> None:
        if stage is not None and (isinstance(stage, bool) or not isinstance(stage, int) or stage < 0):
            raise ValueError(f"A pipeline stage must be an integer of at least 0, but {stage!r} was given.")
        self._pipeline_stage = stage

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.layer.name!r}, node {self.node_index}, stage {self.pipeline_stage})"

    def __str__(self) -> str:
        called = f"{self.layer.name} (node index {self.node_index})"
        return f"Layer: {called} is assigned to pipeline stage: {self.pipeline_stage}"


class FunctionalLayerPipelineStageAssignment(_LayerPipelineStageAssignment):
    """The assignment of a call in a model made of inputs and outputs."""


class NestedModelPipelineStageAssignment:
    """What assignments of whole models add: the assignments of what they call."""

    def __init__(self, nested_model: Any, node_index: int, pipeline_stage_assignments: List[Any]) -> None:
        self._pipeline_stage_assignments = pipeline_stage_assignments
        self._layer, self._node_index = nested_model, node_index

    inbound_layers = _LayerPipelineStageAssignment.inbound_layers
    node_index = _LayerPipelineStageAssignment.node_index
    is_nested_model = True

    @property
    def nested_model(self) -> Any:
        """The model that is called."""
        return self._layer

    @property
    def pipeline_stage_assignments(self) -> List[Any]:
        """The assignments of what it calls."""
        return self._pipeline_stage_assignments

    @property
    def pipeline_stage(self) -> Optional[int]:
        """The stage of all that the model calls, None where there are several; setting it sets them all."""
        found = {one.pipeline_stage for one in self.pipeline_stage_assignments}
        return found.pop() if len(found) == 1 else None

    @pipeline_stage.setter
    def pipeline_stage(self, stage: Optional[int]) -> None:
        for one in self.pipeline_stage_assignments:
            one.pipeline_stage = stage

    def stages(self) -> Union[None, int, stages.Nested]:
        """One stage, or the stages inside."""
        inside = {(id(one.layer), one.node_index): _inside(one) for one in self.pipeline_stage_assignments}
        found = set() if any(isinstance(stage, dict) for stage in inside.values()) else set(inside.values())
        return found.pop() if len(found) == 1 else inside


class FunctionalNestedModelPipelineStageAssignment(
    NestedModelPipelineStageAssignment, FunctionalLayerPipelineStageAssignment
):
    """The assignments inside one call of a model, in a model made of inputs and outputs."""


class ModelLayerPipelineStageAssignment(_LayerPipelineStageAssignment):
    """The assignment of a call in a subclassed model."""


class SequentialLayerPipelineStageAssignment(_LayerPipelineStageAssignment):
    """The assignment of a layer in a chain."""

    def __init__(self, layer: Any, pipeline_stage: Optional[int] = None) -> None:
        super().__init__(layer, 0, pipeline_stage)


class SequentialNestedModelPipelineStageAssignment(NestedModelPipelineStageAssignment):
    """The assignments inside a model that is one layer of a chain."""

    def __init__(self, nested_model: Any, pipeline_stage_assignments: List[Any]) -> None:
        super().__init__(nested_model, 0, pipeline_stage_assignments)


def of_sequential(model: Any, assigned: Optional[Sequence[Any]]) -> List[Any]:
    """The assignment of every layer of a chain; that of a model of inputs and outputs holds the ones inside."""
    found: List[Any] = []
    for layer, stage in zip(model.layers, assigned or [None] * len(model.layers)):
        if getattr(layer, "_is_graph_network", False):
            found.append(SequentialNestedModelPipelineStageAssignment(layer, _within(layer, stage)))
        else:
            found.append(SequentialLayerPipelineStageAssignment(layer, stage))
    return found


def of_functional(model: Any, kind: Any = FunctionalLayerPipelineStageAssignment) -> List[Any]:
    """The assignments of every call, in the order of execution; those of models hold the ones inside."""
    return [_of_call(call, kind, call.nested or call.stage) for call in partition.functional_calls(model)]


def _of_call(call: partition.Call, kind: Any, stage: Union[None, int, stages.Nested]) -> Any:
    nested = kind is FunctionalLayerPipelineStageAssignment and getattr(call.layer, "_is_graph_network", False)
    if not nested:
        return kind(call.layer, call.node_index, stage)
    return FunctionalNestedModelPipelineStageAssignment(call.layer, call.node_index, _within(call.layer, stage))


def _within(model: Any, stage: Union[None, int, stages.Nested]) -> List[Any]:
    """The assignments of what a model calls, whose own stages are the beginning."""
    inside = []
    for one in partition.functional_calls(model):
        own = stage.get((id(one.layer), one.node_index)) if isinstance(stage, dict) else stage
        stage_ = (one.nested or one.stage) if stage is None else own
        inside.append(_of_call(one, FunctionalLayerPipelineStageAssignment, stage_))
    return inside


def _inside(one: Any) -> Union[None, int, stages.Nested]:
    """What is remembered of an assignment."""
    nested = isinstance(one, NestedModelPipelineStageAssignment)
    found: Union[None, int, stages.Nested] = one.stages() if nested else one.pipeline_stage
    return found


def set_functional(model: Any, given: Any, kind: Any = FunctionalLayerPipelineStageAssignment) -> None:
    """Replace the stages of all calls; the list is as long as, and speaks of, what ``of_functional`` gives."""
    calls = partition.functional_calls(model)
    refusals.ASSIGNMENT(
        fits=isinstance(given, list) and all(isinstance(one, kind) for one in given),
        wanted=f"a list of {kind.__name__}: change what get_pipeline_stage_assignment returns",
    )
    refusals.ASSIGNMENT_SIZE(size=len(given), number=len(calls), what="layer calls")
    by_call = {(id(one.layer), one.node_index): _inside(one) for one in given}
    wanted = []
    for call in calls:
        key = (id(call.layer), call.node_index)
        refusals.FOREIGN_ASSIGNMENT(layer=call.name, known=key in by_call)
        stage = by_call[key]
        if isinstance(stage, dict):
            wanted.append(replace(call, stage=None, nested=stage))
        else:
            wanted.append(replace(call, stage=stage, nested=None))
    partition.check(partition.opened(wanted))
    for call, one in zip(calls, wanted):
        stages.assign(call.node, one.nested or one.stage)


def reset_functional(model: Any) -> None:
    """Take back all stages."""
    for call in partition.functional_calls(model):
        stages.assign(call.node, None)


def checked_sequential(model: Any, given: Any) -> List[Any]:
    """The stages of a chain of layers: as many integers as layers, ascending from 0, or assignments of all layers."""
    kinds = {type(one) for one in given} if isinstance(given, list) else {type(given)}
    refusals.ASSIGNMENT(
        fits=kinds <= {int} or kinds <= set(_OF_CHAINS),
        wanted="a list of integers, or of SequentialLayerPipelineStageAssignment, one for each layer",
    )
    refusals.ASSIGNMENT_SIZE(size=len(given), number=len(model.layers), what="layers")
    stage_of = [_stage_of(one, layer) for one, layer in zip(given, model.layers)]
    partition.check(partition.sequential_calls(model, stage_of))
    return stage_of


_OF_CHAINS = (SequentialLayerPipelineStageAssignment, SequentialNestedModelPipelineStageAssignment)


def _stage_of(one: Any, layer: Any) -> Any:
    if isinstance(one, int):
        return one
    if one._layer is not layer:
        raise ValueError(
            f"The provided `pipeline_stage_assignment` assigns {one._layer.name} in the place of {layer.name}: keep "
            "the order of the layers."
        )
    return _inside(one)


def summary(model: Any, calls: Sequence[partition.Call], line_length: Optional[int], print_fn: Any) -> None:
    """A table of calls and their stages."""
    write: Callable[[str], Any] = print_fn or library.module("utils.io_utils").print_msg
    width = line_length or 98
    wide, narrow = int(width * 0.45), int(width * 0.25)
    chained = all(call.node is None for call in calls)
    heads = ("Layer (type)", "Inbound Layers", "Pipeline Stage")
    write(f'Model: "{model.name}"')
    write("_" * width)
    write(_row(heads, (wide, wide + narrow) if not chained else (wide, wide)))
    write("=" * width)
    for number, call in enumerate(calls, 1):
        inbound = ", ".join(layer.name for layer in call.inbound)
        stage = "" if call.stage is None else str(call.stage)
        cells = (f"{call.name} ({type(call.layer).__name__})", inbound, stage)
        write(_row(cells, (wide, wide + narrow) if not chained else (wide, wide)))
        write(("=" if number == len(calls) else "_") * width)


def _row(cells: Sequence[str], stops: Sequence[int]) -> str:
    line = ""
    for cell, stop in zip(cells, [*stops, 0]):
        line = (line + cell + " ").ljust(stop)
    return line.rstrip()
