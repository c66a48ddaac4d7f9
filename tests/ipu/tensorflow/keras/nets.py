"""Trains the suite's nets as Keras models in a strategy's scope, and compares them with the oracle.

A net becomes a Sequential, a Functional or a subclassed model with the net's initial weights. Images are turned to
Keras' order of axes on the way in, and weights back to the net's on the way out.
"""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance import check, nets
from ipu_conformance.nets import Data, Layer, Net, distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.run import RunConfig, learning_rate, optimizer

from ...training import expected, tolerance

PLAIN = RunConfig(
    device_iterations=3,
    micro_batch=2,
    learning_rate=learning_rate(base=0.125),
    accumulation_reduction="sum",
    replica_reduction="sum",
    output_layout="tensorflow",
)
"""Three updates in one execution of one replica; the rest is what each case changes."""

MLP = nets.mlp()
"""The net of most cases."""

KINDS = ("sequential", "functional", "subclassed")


def kinds_of(name: str) -> Tuple[str, ...]:
    """The kinds of models that a net can be built as: one with skips is no chain."""
    return KINDS[1:] if name == "residual" else KINDS


@dataclass
class Trained:
    """What a fit leaves behind."""

    model: Any
    history: Any
    weights: Dict[str, np.ndarray]
    statistics: Dict[str, np.ndarray] = field(default_factory=dict)


class Keras:
    """Builds and trains nets with one TensorFlow and one vendor's package."""

    def __init__(self, tf: Any, ipu: Any, configure: Callable[..., Any]) -> None:
        self.tf, self.ipu, self.configure = tf, ipu, configure
        self.stage = importlib.import_module("keras.ipu").PipelineStage

    # Building

    def layers(self, net: Net) -> Dict[str, List[Any]]:
        """The Keras layers of every layer of a net, by its name."""
        return {layer.name: self._layers(layer, net) for layer in net.layers}

    def _layers(self, layer: Layer, net: Net) -> List[Any]:
        keras = self.tf.keras.layers
        shapes = {weight.name: weight.shape for weight in net.weights}
        if layer.op == "linear":
            return [keras.Dense(shapes[layer.weights[0]][0], name=layer.name)]
        if layer.op == "conv":
            first = shapes[layer.weights[0]]
            bias = len(layer.weights) > 1
            return [keras.Conv2D(first[0], 3, padding="same", use_bias=bias, name=layer.name)]
        if layer.op in ("relu", "tanh"):
            return [keras.Activation(layer.op, name=layer.name)]
        if layer.op == "max_pool":
            return [keras.MaxPooling2D(2, name=layer.name)]
        if layer.op == "avg_pool":
            return [keras.AveragePooling2D(2, name=layer.name)]
        if layer.op == "flatten":
            return [keras.Permute((3, 1, 2), name=f"{layer.name}_order"), keras.Flatten(name=layer.name)]
        if layer.op == "batch_norm":
            momentum = 1 - layer.attributes["momentum"]
            return [keras.BatchNormalization(momentum=momentum, epsilon=layer.attributes["epsilon"], name=layer.name)]
        assert layer.op == "add"
        return [keras.Add(name=layer.name)]

    def build(self, kind: str = "functional", stages: Sequence[int] = (), seed: int = 2021, net: Net = MLP) -> Any:
        """The net as a model of one kind, cut into stages, with its initial weights."""
        layers = self.layers(net)
        if kind == "sequential":
            flat = [(layer, number) for number, parts in enumerate(layers.values()) for layer in parts]
            model = self.tf.keras.Sequential([layer for layer, _ in flat])
            model.build((None, *_axes(net)))
            if stages:
                model.set_pipeline_stage_assignment([stages[number] for _, number in flat])
        elif kind == "functional":
            inputs = self.tf.keras.Input(_axes(net))
            model = self.tf.keras.Model(inputs, self.called(net, layers, inputs, stages))
        else:
            model = self._subclassed(net, layers, stages)
            model.build((PLAIN.micro_batch, *_axes(net)))
        self.load(model, net.initial_weights(seed), net)
        return model

    def called(self, net: Net, layers: Mapping[str, List[Any]], inputs: Any, stages: Sequence[int]) -> Any:
        """The net's value, computed layer by layer, each in the scope of its stage."""
        values = {nets.INPUT: inputs}
        for number, layer in enumerate(net.layers):
            read = [values[name] for name in layer.inputs]
            value = read if len(read) > 1 else read[0]
            with self.stage(stages[number]) if stages else contextlib.nullcontext():
                for part in layers[layer.name]:
                    value = part(value)
            values[layer.name] = value
        return values[net.layers[-1].name]

    def _subclassed(self, net: Net, layers: Mapping[str, List[Any]], stages: Sequence[int]) -> Any:
        called = self.called

        class Subclassed(self.tf.keras.Model):  # type: ignore[name-defined]
            """A model whose layers are called in Python."""

            def __init__(self) -> None:
                super().__init__()
                self.parts = [part for parts in layers.values() for part in parts]

            def call(self, inputs: Any) -> Any:
                return called(net, layers, inputs, stages)

        return Subclassed()

    def load(self, model: Any, weights: Mapping[str, np.ndarray], net: Net = MLP) -> None:
        """Give a model a net's weights; statistics stay as they are."""
        for layer in net.layers:
            if layer.weights:
                arrays = [_turned(layer, weights[name]) for name in layer.weights]
                keras_layer = _layer_of(model, layer)
                keras_layer.set_weights([*arrays, *keras_layer.get_weights()[len(arrays) :]])

    def optimizer(self, config: RunConfig) -> Any:
        """The optimizer of a configuration."""
        rule, rate = config.optimizer, config.learning_rate["base"]
        if rule.name == "sgd":
            return self.tf.keras.optimizers.SGD(rate, momentum=rule["momentum"], nesterov=rule["nesterov"])
        assert rule.name == "adam"
        return self.tf.keras.optimizers.Adam(rate, rule["beta1"], rule["beta2"], rule["epsilon"])

    def dataset(self, config: RunConfig, data: Optional[Data] = None, net: Net = MLP) -> Any:
        """All steps' micro-batches, one after the other."""
        data = data or distinct_micro_batches(net, config)
        inputs = _images(net, data.inputs.reshape((-1, *net.input_shape))).astype(np.float32)
        labels = data.labels.reshape(-1).astype(np.int32)
        samples = self.tf.data.Dataset.from_tensor_slices((inputs, labels))
        return samples.batch(config.micro_batch, drop_remainder=True)

    def compile(self, model: Any, config: RunConfig, **settings: Any) -> None:
        """Compile for the net's loss, with all steps of a replica in one execution."""
        loss = self.tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        settings.setdefault("steps_per_execution", config.device_iterations * config.gradient_accumulation)
        model.compile(settings.pop("optimizer", None) or self.optimizer(config), loss, **settings)

    def options(self, model: Any, config: RunConfig) -> None:
        """Set the options of accumulation or of the pipeline."""
        if config.stages:
            chosen = {} if config.schedule == "grouped" else {"pipeline_schedule": self.schedule(config.schedule)}
            model.set_pipelining_options(
                config.gradient_accumulation,
                device_mapping=list(config.devices) or None,
                gradient_accumulation_reduction_method=config.accumulation_reduction,
                **chosen,
            )
        elif config.gradient_accumulation > 1:
            model.set_gradient_accumulation_options(
                config.gradient_accumulation, gradient_accumulation_reduction_method=config.accumulation_reduction
            )

    def schedule(self, name: str) -> Any:
        """The vendor's member for a schedule."""
        return getattr(self.ipu.ops.pipelining_ops.PipelineSchedule, name.capitalize())

    # Running

    @contextlib.contextmanager
    def scope(self, config: RunConfig) -> Iterator[Any]:
        """The scope of a strategy on as many IPUs as a configuration needs."""
        self.configure(ipus(config))
        strategy = self.ipu.ipu_strategy.IPUStrategy()
        with strategy.scope():
            yield strategy

    @contextlib.contextmanager
    def ready(
        self,
        config: RunConfig,
        kind: str = "functional",
        net: Net = MLP,
        stages: Optional[Sequence[int]] = None,
        options: bool = True,
        **settings: Any,
    ) -> Iterator[Any]:
        """A model in its scope, built and compiled, with the options of the configuration unless a case sets them."""
        with self.scope(config):
            model = self.build(kind, config.stages if stages is None else stages, net=net)
            self.compile(model, config, **settings)
            if options:
                self.options(model, config)
            yield model

    def fit(self, config: RunConfig, kind: str = "functional", name: str = "mlp", **settings: Any) -> Trained:
        """Train a net in one fit."""
        net = nets.NETS[name]()
        with self.ready(config, kind, net, **settings) as model:
            history = model.fit(self.dataset(config, net=net), verbose=0)
        return self.trained(model, history.history, net)

    def check_fit(self, config: RunConfig, kind: str = "functional", name: str = "mlp", **settings: Any) -> None:
        """A net that is trained in one fit has the oracle's weights."""
        __tracebackhide__ = True
        assert_trained(self.fit(config, kind, name, **settings), config, name)

    def trained(self, model: Any, history: Any = None, net: Net = MLP) -> Trained:
        """What a fit has left in a model."""
        return Trained(model, history, self.weights(model, net), self.statistics(model, net))

    def weights(self, model: Any, net: Net = MLP) -> Dict[str, np.ndarray]:
        """The trained weights under the net's names, in its order of axes."""
        return {
            name: _turned(layer, value, back=True)
            for layer in net.layers
            for name, value in zip(layer.weights, _layer_of(model, layer).get_weights() if layer.weights else [])
        }

    def statistics(self, model: Any, net: Net = MLP) -> Dict[str, np.ndarray]:
        """The running statistics under the net's names."""
        return {
            f"{layer.name}.{name}": value
            for layer in net.layers
            if layer.op == "batch_norm"
            for name, value in zip(("running_mean", "running_var"), _layer_of(model, layer).get_weights()[2:])
        }


def ipus(config: RunConfig) -> int:
    """The IPUs that a configuration needs: those of a replica come in powers of two."""
    used = max(config.devices) + 1 if config.devices else config.number_of_stages
    return (1 << (used - 1).bit_length()) * config.replicas


def assert_trained(trained: Trained, config: RunConfig, name: str = "mlp") -> None:
    """The weights, and the statistics if there are any, are the oracle's."""
    __tracebackhide__ = True
    fields = ["weights"] + (["statistics"] if nets.NETS[name]().statistics else [])
    check.runs_equivalent(
        actual=trained, expected=expected(name, config), tolerance=tolerance(name, config), fields=fields
    )


def momentum(config: RunConfig, **settings: Any) -> RunConfig:
    """A configuration with Keras' momentum, whose velocity holds the learning rate."""
    return replace(config, optimizer=optimizer("sgd", momentum=0.5, rate_in_velocity=True, **settings))


def adam(config: RunConfig) -> RunConfig:
    """A configuration with Keras' Adam; the decays, and one less them, are exact in float32."""
    rule = optimizer("adam", beta1=0.5, beta2=0.75, epsilon=1e-7, epsilon_at="uncorrected")
    return replace(config, optimizer=rule, learning_rate=learning_rate(base=0.0078125))


def _layer_of(model: Any, layer: Layer) -> Any:
    """The Keras layer of a net's layer: the last one of that name."""
    return {part.name: part for part in model.layers}[layer.name]


def _axes(net: Net) -> Tuple[int, ...]:
    shape = net.input_shape
    return shape if len(shape) == 1 else (*shape[1:], shape[0])


def _images(net: Net, inputs: np.ndarray) -> np.ndarray:
    return inputs if len(net.input_shape) == 1 else np.moveaxis(inputs, 1, -1)


def _turned(layer: Layer, weight: np.ndarray, back: bool = False) -> np.ndarray:
    """A weight from the net's order of axes to Keras', or back."""
    if layer.op == "conv" and weight.ndim == 4:
        return weight.transpose(3, 2, 0, 1) if back else weight.transpose(2, 3, 1, 0)
    return weight.T if layer.op == "linear" and weight.ndim == 2 else weight


def mean_losses(name: str, config: RunConfig) -> Tuple[np.ndarray, run_tolerance.ArrayTolerance]:
    """Each replica's mean loss over the steps of a fit, and its tolerance.

    The mean of values that are each within their tolerance is within the mean of the tolerances; adding and dividing
    rounds once per value more.
    """
    shape = (-1, config.replicas)
    losses = np.reshape(expected(name, config).losses[0], shape)
    allowed = np.reshape(tolerance(name, config).losses[0].allowed, shape)
    rounding = (len(losses) + 1) * np.finfo(np.float32).eps * np.abs(losses).max(axis=0)
    origin = "the mean of the losses' tolerances and one rounding of float32 for each loss"
    total = allowed.mean(axis=0) + rounding
    return losses.mean(axis=0), run_tolerance.ArrayTolerance(total, total, origin)


def inferred(
    name: str, data: Data, weights: Optional[Mapping[str, np.ndarray]] = None
) -> Tuple[np.ndarray, run_tolerance.ArrayTolerance]:
    """The oracle's outputs for all samples of some data, and their tolerance from runs with random rounding."""
    net = nets.NETS[name]()
    samples = int(np.prod(data.labels.shape))
    config = replace(PLAIN, training=False, device_iterations=1, micro_batch=samples, output_layout="poptorch")
    flat = Data(data.inputs.reshape((1, samples, *net.input_shape)), data.labels.reshape(1, samples))

    values, allowed = run_tolerance.for_inference(net, flat, config, weights=weights)
    return values[0], allowed[0]


def check_predictions(
    keras: Keras, config: RunConfig, kind: str = "functional", data: Optional[Data] = None, **settings: Any
) -> None:
    """A model predicts the oracle's outputs for all samples, in the order of the data."""
    __tracebackhide__ = True
    data = data or distinct_micro_batches(MLP, config)
    with keras.ready(config, kind, **settings) as model:
        predicted = model.predict(keras.dataset(config, data), verbose=0)

    want, allowed = inferred("mlp", data)
    check.close(actual=predicted, expected=want, tolerance=allowed, what="the predictions")
