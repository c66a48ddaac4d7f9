"""Stages and options of a model on their way through its configuration, with which Keras saves and loads it."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ipu_conformance.emulator.tensorflow.keras import library, options, partition, stages

KEY = "ipu"
"""Where a model's configuration holds what the IPU adds to it."""


def described(model: Any) -> Dict[str, Any]:
    """What the IPU adds to a model's configuration: stages, and those options that can be written down."""
    state = model._ipu
    pipelining, accumulation = state.pipelining, state.accumulation
    own: Dict[str, Any] = {
        "stages": model._ipu_saved_stages(),
        "pipelining": {
            "gradient_accumulation_steps_per_replica": pipelining.count,
            "device_mapping": None if pipelining.device_mapping is None else list(pipelining.device_mapping),
            "accumulate_outfeed": pipelining.accumulate_outfeed,
            "gradient_accumulation_reduction_method": pipelining.method.name,
        },
        "accumulation": {
            "gradient_accumulation_steps_per_replica": accumulation.count,
            "gradient_accumulation_reduction_method": accumulation.method.name,
        },
        "metric_reduction": state.metric_reduction.name,
        "asynchronous": state.asynchronous,
    }
    return {} if own == _UNSET else {KEY: own}


_UNSET: Dict[str, Any] = {
    "stages": None,
    "pipelining": {
        "gradient_accumulation_steps_per_replica": None,
        "device_mapping": None,
        "accumulate_outfeed": False,
        "gradient_accumulation_reduction_method": "SUM",
    },
    "accumulation": {
        "gradient_accumulation_steps_per_replica": None,
        "gradient_accumulation_reduction_method": "SUM",
    },
    "metric_reduction": "NONE",
    "asynchronous": False,
}


def restored(model: Any, config: Optional[Mapping[str, Any]]) -> None:
    """Give a model back what its configuration says of the IPU; one of no scope has no use for it."""
    own = (config or {}).get(KEY)
    if own is None or not hasattr(model, "_ipu_restore_stages"):
        return
    model.set_pipelining_options(**own["pipelining"])
    model.set_gradient_accumulation_options(**own["accumulation"])
    model._ipu.metric_reduction = options.metric_reduction(own["metric_reduction"])
    model._ipu.asynchronous = own["asynchronous"]
    if own["stages"] is not None:
        model._ipu_restore_stages(own["stages"])


def stages_of(model: Any) -> Optional[List[Any]]:
    """The layer and the stage of every call of a model made of inputs and outputs; of models inside, their calls."""
    calls = partition.functional_calls(model)
    listed = [[call.layer.name, _written(call.layer, call.nested or call.stage)] for call in calls]
    return None if all(stage is None for _, stage in listed) else listed


def _written(layer: Any, stage: Any) -> Any:
    if not isinstance(stage, dict):
        return stage
    return [
        [call.layer.name, _written(call.layer, stage.get((id(call.layer), call.node_index)))]
        for call in partition.functional_calls(layer)
    ]


def stages_of_chain(model: Any, assigned: Optional[Sequence[Any]]) -> Optional[List[Any]]:
    """The stage of every layer of a chain; of models in it, their calls."""
    return None if assigned is None else [_written(layer, stage) for layer, stage in zip(model.layers, assigned)]


def read_chain(model: Any, listed: Sequence[Any]) -> List[Any]:
    """What ``stages_of_chain`` was given."""
    return [_inside(layer, stage) for layer, stage in zip(model.layers, listed)]


def restore_stages(model: Any, listed: Sequence[Any]) -> None:
    """Set the stages that ``stages_of`` has given."""
    for call, stage in zip(partition.functional_calls(model), _read(model, listed)):
        stages.assign(call.node, stage)


def _read(model: Any, listed: Sequence[Any]) -> List[Any]:
    """The stage of every call in its order: calls of one layer are told apart by their order."""
    waiting: Dict[str, List[Any]] = {}
    for name, stage in listed:
        waiting.setdefault(name, []).append(stage)
    found = []
    for call in partition.functional_calls(model):
        found.append(_inside(call.layer, waiting[call.layer.name].pop(0)))
    return found


def _inside(layer: Any, stage: Any) -> Any:
    """A stage, or those of the calls of a model by call."""
    if not isinstance(stage, (list, tuple)):
        return stage
    inside = zip(partition.functional_calls(layer), _read(layer, stage))
    return {(id(one.layer), one.node_index): own for one, own in inside}


def install() -> None:
    """Make Keras restore what configurations say of the IPU, from a configuration and from a SavedModel."""
    for kind in (library.model_class(), library.functional_class(), library.sequential_class()):
        if "from_config" in kind.__dict__:
            kind.from_config = classmethod(_restoring(kind.__dict__["from_config"].__func__))
    loader: Any = library.module("saving.legacy.saved_model.load")
    reconstruct = loader.KerasObjectLoader._reconstruct_model

    @functools.wraps(reconstruct)
    def restoring(self: Any, model_id: Any, model: Any, layers: Any) -> Any:
        result = reconstruct(self, model_id, model, layers)
        restored(model, loader.json_utils.decode(self._metadata[model_id].metadata)["config"])
        return result

    loader.KerasObjectLoader._reconstruct_model = restoring


def _restoring(from_config: Any) -> Any:
    @functools.wraps(from_config)
    def restoring(cls: Any, config: Any, custom_objects: Any = None) -> Any:
        model = from_config(cls, config, custom_objects)
        restored(model, config)
        return model

    return restoring
