"""The functions that a device's compiler is given, as graphs: a net's inference, and one step of its training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf

from ipu_conformance import frameworks
from ipu_conformance.frameworks.tensorflow import models, rules
from ipu_conformance.frameworks.tensorflow.models import KerasNet
from ipu_conformance.ir.graph import Graph
from ipu_conformance.ir.readers.tensorflow.graph import read_graph
from ipu_conformance.nets import Net
from ipu_conformance.run import RunConfig


def dump(net: Net, config: RunConfig) -> Optional[Graph]:
    """The function of a net's inference, or of one update; None for an update that is no single function.

    A function neither accumulates nor reduces. Weights have the net's names.
    """
    if not config.training:
        return _inference(net, config)
    single = config.gradient_accumulation == config.replicas == 1 and config.dtype == "float32"
    return _training(net, config) if single else None


def program(built: KerasNet) -> Optional[Callable[[], Graph]]:
    """What reads the run that the device has compiled, with the net's names; None where the target does not show it."""
    shown = frameworks.ir("tensorflow", built.model)
    if shown is None:
        return None
    ours = _names(built)
    return lambda: _named(shown() if callable(shown) else shown, ours, {})


def _names(built: KerasNet) -> Dict[str, str]:
    """The net's names by those of the model's variables."""
    return {variable.name.split(":")[0]: name for name, variable in {**built.trained, **built.running}.items()}


def _inference(net: Net, config: RunConfig) -> Graph:
    built = models.keras_net(net, config)
    return _dumped(built, config, lambda x, labels: built.model(x, training=False))


def _training(net: Net, config: RunConfig) -> Graph:
    """The loss, the logits, and the next value of every variable."""
    built = models.keras_net(net, config)
    model, optimizer = built.model, rules.optimizer(config)
    optimizer.build(model.trainable_variables)

    def step(x: Any, labels: Any) -> Tuple[Any, Any]:
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(each) if dict(net.loss_settings).get("reduction") != "sum" else tf.reduce_sum(each)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss, logits

    return _dumped(built, config, step)


def _dumped(built: KerasNet, config: RunConfig, function: Callable[[Any, Any], Any]) -> Graph:
    """The graph of a function of samples and labels, with the values of all variables that are not the net's."""
    entry = built.model.inputs[0]
    specs = (
        tf.TensorSpec((config.micro_batch, *entry.shape[1:]), entry.dtype),
        tf.TensorSpec((config.micro_batch, *built.net.label_shape), tf.int32),
    )
    concrete = tf.function(function).get_concrete_function(*specs)
    held = {
        variable.name.split(":")[0]: np.asarray(variable.numpy()).astype(_stored(variable)).tobytes()
        for variable in concrete.graph.variables
    }
    return _named(read_graph(concrete), _names(built), held)


def _stored(variable: Any) -> np.dtype:
    return np.dtype(variable.dtype.as_numpy_dtype).newbyteorder("<")


def _named(graph: Graph, ours: Mapping[str, str], held: Mapping[str, bytes]) -> Graph:
    """The graph with the net's names for its weights, and the values of other variables."""

    def name(tensor: str) -> str:
        variable, *replica = tensor.split("@")
        return "@".join((ours.get(variable, variable), *replica))

    others = {each: name(each) for each in graph.initializers if name(each) != each}
    ops = [
        replace(op, inputs=tuple(others.get(each, each) for each in op.inputs)) if others.keys() & op.inputs else op
        for op in graph.ops
    ]
    initializers: Dict[str, Any] = {
        name(each): data if data is not None or each in ours else held.get(each)
        for each, data in graph.initializers.items()
    }
    return Graph(
        name=graph.name,
        ops=ops,
        inputs=graph.inputs,
        outputs=[name(each) for each in graph.outputs],
        tensors=[
            replace(tensor, name=others[key]) if key in others else tensor for key, tensor in graph.tensors.items()
        ],
        initializers=initializers,
        opset=graph.opset,
    )
