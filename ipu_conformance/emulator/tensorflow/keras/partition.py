"""A model cut into the stages of a pipeline: which calls of layers each runs, and which tensors pass between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from ipu_conformance.emulator.tensorflow.keras import library, stages
from ipu_conformance.emulator.tensorflow.refusals import keras as refusals

AUXILIARY = "regularisation"
"""The tensor that carries the sum of regularisation losses from stage to stage."""
MASK = " mask"
"""The end of the name of a tensor's mask, which passes from stage to stage with it."""


@dataclass(frozen=True)
class Call:
    """One call of a layer: what it reads and writes, by the names of tensors."""

    layer: Any
    node_index: int
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    stage: Optional[int]
    node: Any = field(default=None, repr=False, compare=False)
    nested: Any = None
    """The stages inside a model that is called, where they differ: see ``opened``."""

    @property
    def inbound(self) -> Tuple[Any, ...]:
        """The layers whose outputs it reads; Keras takes long to find them, and few ask."""
        found = () if self.node is None else self.node.inbound_layers
        return tuple(found) if isinstance(found, (list, tuple)) else (found,)

    @property
    def name(self) -> str:
        """The layer, with the number of its call where it is called again."""
        return self.layer.name if self.node_index == 0 else f"{self.layer.name} (call {self.node_index})"


def functional_calls(model: Any) -> List[Call]:
    """The calls of a model that is made of inputs and outputs, in the order of execution."""
    calls = []
    for depth in sorted(model._nodes_by_depth, reverse=True):
        for node in model._nodes_by_depth[depth]:
            if node.is_input:
                continue
            calls.append(
                Call(
                    node.layer,
                    node.layer._inbound_nodes.index(node),
                    tuple(node.flat_input_ids),
                    tuple(node.flat_output_ids),
                    stages.of_node(node),
                    node,
                    stages.nested_of(node),
                )
            )
    return calls


def has_stages(model: Any) -> bool:
    """Whether any call of such a model, or of a model inside, has a stage."""
    nodes = [node for alike in model._nodes_by_depth.values() for node in alike]
    if any(stages.nested_of(node) is not None for node in nodes):
        return any(call.stage is not None for call in opened(functional_calls(model)))
    return any(stages.of_node(node) is not None for node in nodes)


def opened(calls: Sequence[Call], within: str = "") -> List[Call]:
    """The calls with those of models that lie in several stages replaced by what these call.

    A model may be called again: the names of tensors inside begin with the call that they belong to.
    """
    made: List[Call] = []
    for call in calls:
        if call.nested is None:
            made.append(call)
            continue
        if call.node is not None and any(value is not None for value in call.node.call_kwargs.values()):
            raise ValueError(
                f"{call.name} lies in several pipeline stages and is called with {sorted(call.node.call_kwargs)}: call "
                "it with its inputs only."
            )
        place = f"{within}{id(call.node or call.layer)}/"
        known = dict(zip((str(id(tensor)) for tensor in call.layer.inputs), call.inputs))
        known.update(zip((str(id(tensor)) for tensor in call.layer.outputs), call.outputs))
        inner = []
        for one in functional_calls(call.layer):
            stage = call.nested.get((id(one.layer), one.node_index))
            inner.append(
                replace(
                    one,
                    inputs=tuple(known.get(name, place + name) for name in one.inputs),
                    outputs=tuple(known.get(name, place + name) for name in one.outputs),
                    stage=None if isinstance(stage, dict) else stage,
                    nested=stage if isinstance(stage, dict) else None,
                )
            )
        made += opened(inner, place)
    return made


def sequential_calls(model: Any, assigned: Optional[Sequence[Any]]) -> List[Call]:
    """The calls of a chain of layers; a model in it that lies in several stages is replaced by what it calls."""
    calls = []
    for number, layer in enumerate(model.layers):
        stage = None if assigned is None else assigned[number]
        inside = stage if isinstance(stage, dict) else None
        one = None if inside is not None else stage
        calls.append(Call(layer, 0, (_link(number),), (_link(number + 1),), one, nested=inside))
    return opened(calls)


def _link(number: int) -> str:
    return f"link {number}"


def check(calls: Sequence[Call]) -> int:
    """The number of stages, when every call has one, none is missing, and no call needs what a later stage makes."""
    refusals.LAYERS_WITHOUT_STAGE(names=[call.name for call in calls if call.stage is None])
    made: Dict[str, Call] = {}
    for call in calls:
        for name in call.inputs:
            refusals.STAGES_BACKWARDS(reader=call, source=made.get(name))
        made.update((name, call) for name in call.outputs)
    used = sorted({call.stage for call in calls if call.stage is not None})
    refusals.STAGES_WITH_GAPS(used=used)
    return len(used)


class KerasStages:
    """The stages of a model as a machine runs them; ``phase`` is train, evaluate or predict."""

    def __init__(self, model: Any, network: Any, calls: Sequence[Call], phase: str) -> None:
        self.model = model
        self.network = network
        self.number = check(calls)
        self.training = phase == "train"
        self.phase = phase
        self.calls = [[call for call in calls if call.stage == stage] for stage in range(self.number)]
        self.functional = calls[0].inputs != (_link(0),)
        if self.functional:
            self.inputs = [str(id(tensor)) for tensor in network.inputs]
            self.outputs = [str(id(tensor)) for tensor in network.outputs]
        else:
            self.inputs, self.outputs = [_link(0)], [_link(len(model.layers))]
        self.needed = self._needed_after()
        self.regularised = any(layer.losses or _has_activity(layer) for own in self.calls for layer in _layers(own))

    def _needed_after(self) -> List[Set[str]]:
        """For every stage the tensors that later ones need."""
        needed: Set[str] = set(self.outputs)
        after: List[Set[str]] = []
        for own in reversed(self.calls):
            after.append(set(needed))
            needed = needed | {name for call in own for name in call.inputs}
        return after[::-1]

    def enter(self, data: Any) -> Dict[str, Any]:
        """The inputs of the model, conformed as Keras does."""
        import tensorflow as tf

        x = data[0] if isinstance(data, tuple) else data
        if self.functional or getattr(self.network, "_is_graph_network", False):
            flat = self.network._flatten_to_reference_inputs(x)
            flat = [
                self.network._conform_to_reference_input(tensor, ref_input=reference)
                for tensor, reference in zip(flat, self.network.inputs)
            ]
        else:
            flat = [tf.convert_to_tensor(x)]
        live = dict(zip(self.inputs, flat))
        if self.regularised:
            live[AUXILIARY] = tf.zeros([])
        return live

    def forward(self, stage: int, live: Dict[str, Any]) -> Dict[str, Any]:
        """Run the calls of one stage."""
        import tensorflow as tf

        held = {name: tensor for name, tensor in live.items() if not name.endswith(MASK)}
        for name, tensor in held.items():
            if name + MASK in live:
                tensor._keras_mask = live[name + MASK]
        self.model._clear_losses()
        with library.called_by(self.model, list(held.values()), self.training):
            for call in self.calls[stage]:
                results = self._result(call, held)
                held.update(zip(call.outputs, tf.nest.flatten(results)))
        if self.regularised:
            held[AUXILIARY] = tf.add_n([held[AUXILIARY], *_losses(self.calls[stage])])
        keep = self.needed[stage] | {AUXILIARY}
        handed = {name: tensor for name, tensor in held.items() if name in keep}
        masks = {name + MASK: getattr(tensor, "_keras_mask", None) for name, tensor in handed.items()}
        return {**handed, **{name: mask for name, mask in masks.items() if mask is not None}}

    def _result(self, call: Call, held: Dict[str, Any]) -> Any:
        if call.node is None:
            return call.layer(held[call.inputs[0]])
        given = zip(call.node.flat_input_ids, call.inputs)
        arguments, settings = call.node.map_arguments({own: [held[name]] * len(call.inputs) for own, name in given})
        return call.layer(*arguments, **settings)

    def finish(self, live: Dict[str, Any], data: Any) -> Tuple[Any, Any]:
        """The loss and the logs, or in prediction the outputs."""
        import tensorflow as tf

        flat = [live[name] for name in self.outputs]
        predicted = tf.nest.pack_sequence_as(self.network._nested_outputs, flat) if self.functional else flat[0]
        if self.phase == "predict":
            return None, predicted
        x, y, weight = library.module("engine.data_adapter").unpack_x_y_sample_weight(data)
        model = self.model
        with model._ipu_losses([live[AUXILIARY]] if self.regularised else []):
            loss = model.compute_loss(x, y, predicted, weight)
            if self.training:
                model._validate_target_and_loss(y, loss)
                loss = _as_minimised(model.optimizer, loss)
            return loss, model.compute_metrics(x, y, predicted, weight)

    def variables(self, stage: int) -> Sequence[Any]:
        """The trained variables of the stage's layers."""
        seen: Dict[int, Any] = {}
        for layer in _layers(self.calls[stage]):
            seen.update((id(variable), variable) for variable in layer.trainable_variables)
        return list(seen.values())


def _as_minimised(optimizer: Any, loss: Any) -> Any:
    """The loss whose gradients an optimizer takes: one that scales losses takes those of the scaled one."""
    return optimizer._transform_loss(loss) if hasattr(optimizer, "_transform_loss") else loss


def _layers(calls: Sequence[Call]) -> List[Any]:
    """The layers of the calls, each once."""
    return list({id(call.layer): call.layer for call in calls}.values())


def _losses(calls: Sequence[Call]) -> List[Any]:
    """What the layers of the calls add to the loss."""
    return [loss for layer in _layers(calls) for loss in layer.losses]


def _has_activity(layer: Any) -> bool:
    return any(getattr(inner, "_activity_regularizer", None) is not None for inner in layer._flatten_layers())
