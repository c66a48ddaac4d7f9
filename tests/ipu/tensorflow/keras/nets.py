"""Trains the suite's nets as Keras models in a strategy's scope, and compares them with the oracle.

A net becomes a Sequential, a Functional or a subclassed model with the net's initial weights.
"""

from __future__ import annotations

import contextlib
import importlib
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.frameworks import orient
from ipu_conformance.nets import Data, Net, distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.run import RunConfig, Weights, learning_rate, optimizer

from ...training import expected, inference, inferred, ipus, tolerance

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
"""The kinds of models that a net can be built as; one with skips is not a chain."""


class Fit(NamedTuple):
    """A fit that leaves what the oracle says: a row of a table."""

    config: RunConfig
    kind: str = "functional"
    name: str = "mlp"
    settings: Mapping[str, Any] = {}


def each_fit(rows: Mapping[str, Fit]) -> pytest.MarkDecorator:
    """Runs a case for every row, on the IPUs that it needs."""
    return pytest.mark.parametrize(
        "fit", [pytest.param(fit, id=word, marks=ipus(fit.config)) for word, fit in rows.items()]
    )


@dataclass(frozen=True)
class Trained:
    """What a fit leaves behind."""

    weights: Weights
    statistics: Optional[Weights]
    updates: int = 0
    history: Mapping[str, List[Any]] = field(default_factory=dict)


class Keras:
    """Builds and trains nets with one TensorFlow and one vendor's package."""

    def __init__(self, tf: Any, ipu: Any, configure: Callable[..., Any], records: Dict[Any, Any]) -> None:
        self.tf, self.ipu, self.configure, self._records = tf, ipu, configure, records
        self.driver = importlib.import_module("ipu_conformance.frameworks.tensorflow")
        self.stage = importlib.import_module("keras.ipu").PipelineStage

    def once(self, key: Any, run: Callable[[], Any]) -> Any:
        """What a run gives; the cases that ask for the same run share it."""
        if key not in self._records:
            self._records[key] = run()
        return self._records[key]

    # Building

    def layers(self, net: Net) -> Dict[str, List[Any]]:
        """The Keras layers of every layer of a net, by its name."""
        turned = {
            layer.name: [self.tf.keras.layers.Permute((3, 1, 2), name=f"{layer.name}_order")]
            for layer in net.layers
            if layer.op == "flatten"
        }
        make = self.driver.models.keras_layer
        return {
            layer.name: [*turned.get(layer.name, ()), make(layer, net, {}, {"name": layer.name})]
            for layer in net.layers
        }

    def build(self, kind: str = "functional", stages: Sequence[int] = (), seed: int = 2021, net: Net = MLP) -> Any:
        """The net as a model of one kind, cut into stages, with its initial weights."""
        layers, axes = self.layers(net), self.driver.models.image_axes(net.input_shape)
        if kind == "sequential":
            flat = [(layer, number) for number, parts in enumerate(layers.values()) for layer in parts]
            model = self.tf.keras.Sequential([layer for layer, _ in flat])
            model.build((None, *axes))
            if stages:
                model.set_pipeline_stage_assignment([stages[number] for _, number in flat])
        elif kind == "functional":
            inputs = self.tf.keras.Input(axes)
            model = self.tf.keras.Model(inputs, self.called(net, layers, inputs, stages))
        else:
            model = self._subclassed(net, layers, stages)
            model.build((PLAIN.micro_batch, *axes))
        self.load(model, seed, net)
        return model

    def called(self, net: Net, layers: Mapping[str, List[Any]], inputs: Any, stages: Sequence[int]) -> Any:
        """The net's value, computed layer by layer, each in the scope of its stage."""
        values = {nets.INPUT: inputs}
        for number, layer in enumerate(net.layers):
            read = [values[name] for name in layer.inputs]
            value = read if len(read) > 1 else read[0]
            with self.stage_of(stages, number):
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

    def scale(self, start: float = 1.0, **settings: Any) -> Any:
        """A layer of one weight."""
        initial = self.tf.keras.initializers.Constant(start)
        return self.tf.keras.layers.Dense(1, kernel_initializer=initial, **{"use_bias": False, **settings})

    def stage_of(self, stages: Sequence[int], number: int) -> Any:
        """The scope of the stage of one layer, if there are stages."""
        return self.stage(stages[number]) if stages else contextlib.nullcontext()

    def known(self, model: Any, net: Net = MLP) -> Any:
        """A model of a net with its variables under the net's names."""
        parts = {part.name: part.weights for part in model.layers}
        trained = {name: held for layer in net.layers for name, held in zip(layer.weights, parts[layer.name])}
        running = {
            f"{layer.name}.{word}": held
            for layer in net.layers
            if layer.op == "batch_norm"
            for word, held in zip(("running_mean", "running_var"), parts[layer.name][2:])
        }
        return self.driver.models.KerasNet(net, model, trained, running)

    def load(self, model: Any, seed: int = 2021, net: Net = MLP) -> None:
        """Give a model a net's initial weights; statistics stay as they are."""
        start = net.initial_weights(seed)
        for name, held in self.known(model, net).trained.items():
            held.assign(orient(net, name, start[name], self.driver.models.AXES))

    def dataset(self, config: RunConfig, data: Optional[Data] = None, net: Net = MLP) -> Any:
        """All steps' micro-batches, one after the other."""
        data = data or distinct_micro_batches(net, config)
        inputs = self.driver.models.images(net, data.inputs.reshape((-1, *net.input_shape))).astype(np.float32)
        samples = self.tf.data.Dataset.from_tensor_slices((inputs, data.labels.reshape(-1).astype(np.int32)))
        return samples.batch(config.micro_batch, drop_remainder=True)

    def compile(self, model: Any, config: RunConfig, loss: Any = None, **settings: Any) -> None:
        """Compile for a loss, else the net's, with all steps of a replica in one execution."""
        loss = loss or self.tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        settings.setdefault("steps_per_execution", config.device_iterations * config.gradient_accumulation)
        model.compile(settings.pop("optimizer", None) or self.driver.rules.optimizer(config), loss, **settings)

    def options(self, model: Any, config: RunConfig, **more: Any) -> None:
        """Set the options of accumulation or of the pipeline, and more of them."""
        more = {"gradient_accumulation_reduction_method": config.accumulation_reduction, **more}
        if config.stages:
            if config.schedule != "grouped":
                more["pipeline_schedule"] = self.schedule(config.schedule)
            devices = list(config.devices) or None
            model.set_pipelining_options(config.gradient_accumulation, device_mapping=devices, **more)
        elif config.gradient_accumulation > 1:
            model.set_gradient_accumulation_options(config.gradient_accumulation, **more)

    def schedule(self, name: str) -> Any:
        """The vendor's member for a schedule."""
        return getattr(self.ipu.ops.pipelining_ops.PipelineSchedule, name.capitalize())

    def twice_the_loss(self, labels: Any, predicted: Any) -> Any:
        """A metric beside the loss, which is known from it."""
        return 2 * self.tf.keras.losses.sparse_categorical_crossentropy(labels, predicted, from_logits=True)

    # Running

    @contextlib.contextmanager
    def scope(self, config: RunConfig) -> Iterator[Any]:
        """The scope of a strategy on as many IPUs as a configuration needs."""
        self.configure(self.driver.ipus(config), allow_recompute=config.recompute)
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
        options: Optional[Callable[[Any], None]] = None,
        **settings: Any,
    ) -> Iterator[Any]:
        """A model in its scope, built and compiled, with the options of the configuration unless others are set."""
        with self.scope(config):
            model = self.build(kind, config.stages if stages is None else stages, net=net)
            self.compile(model, config, **settings)
            options(model) if options else self.options(model, config)
            yield model

    def fit(self, config: RunConfig, kind: str = "functional", name: str = "mlp", **settings: Any) -> Trained:
        """What training a net in one fit leaves; ``settings`` are those of ``ready``."""
        net = nets.NETS[name]()

        def run() -> Trained:
            with self.ready(config, kind, net, **settings) as model:
                history = model.fit(self.dataset(config, net=net), verbose=0).history
            return self.trained(model, net, updates=int(model.optimizer.iterations), history=history)

        fitted: Trained = self.once(("fit", config, kind, name, tuple(sorted(settings.items()))), run)
        return fitted

    def chained(self, config: RunConfig, layers: Sequence[Any], x: Any, y: Any = None, **settings: Any) -> Any:
        """A chain of layers after a fit on samples one by one, in their order; the settings are those of ``compile``.

        The loss is the output, the rate 1/8 and the label the sample itself where there are no others. An optimizer is
        made in the scope.
        """
        more, optimizer = settings.pop("options", {}), settings.pop("optimizer", lambda: None)
        x = np.asarray(x, np.float32).reshape(-1, 1)
        with self.scope(config):
            model = self.tf.keras.Sequential(layers)
            model.build((None, 1))
            if config.stages:
                model.set_pipeline_stage_assignment(list(config.stages))
            self.options(model, config, **more)
            self.compile(model, config, optimizer=optimizer(), **{"loss": outputs_alone, **settings})
            model.fit(x, x if y is None else y, batch_size=1, shuffle=False, verbose=0)
        return model

    def check_fit(self, config: RunConfig, kind: str = "functional", name: str = "mlp", **settings: Any) -> None:
        """A net that is trained in one fit has the oracle's weights, and its optimizer has counted the updates."""
        __tracebackhide__ = True
        trained = self.fit(config, kind, name, **settings)
        check_trained(trained, config, name)
        check.equal(actual=trained.updates, expected=config.device_iterations, what="the optimizer's count of updates")

    def check_trained(self, model: Any, config: RunConfig) -> None:
        """A model of the usual net has the oracle's weights."""
        __tracebackhide__ = True
        check_trained(self.trained(model), config)

    def trained(self, model: Any, net: Net = MLP, **seen: Any) -> Trained:
        """What a fit has left in a model, and what else was seen of it."""
        known = self.known(model, net)
        return Trained(known.weights(), known.statistics(), **seen)

    def predict(self, config: RunConfig, kind: str = "functional", **settings: Any) -> np.ndarray:
        """The predictions of the initial weights for all samples; ``settings`` are those of ``ready``."""

        def run() -> np.ndarray:
            with self.ready(config, kind, **settings) as model:
                return np.asarray(model.predict(self.dataset(config), verbose=0))

        predictions: np.ndarray = self.once(("predict", config, kind, tuple(sorted(settings.items()))), run)
        return predictions


def check_outputs(actual: Any, config: RunConfig) -> None:
    """The outputs for all samples of a configuration's data are the oracle's, in the order of the data."""
    __tracebackhide__ = True
    (want,), (allowed,) = (list(each.values()) for each in inferred("mlp", inference(config)))
    shape = (-1, MLP.classes)
    bound = replace(allowed, allowed=allowed.allowed.reshape(shape))
    check.outputs_in_order(actual=actual, expected=want.reshape(shape), tolerance=bound, what="the predictions")


def check_trained(trained: Trained, config: RunConfig, name: str = "mlp") -> None:
    """The weights, and the statistics if there are any, are the oracle's."""
    __tracebackhide__ = True
    fields = ["weights"] + (["statistics"] if nets.NETS[name]().statistics else [])
    check.runs_equivalent(
        actual=trained, expected=expected(name, config), tolerance=tolerance(name, config), fields=fields
    )


def outputs_alone(labels: Any, outputs: Any) -> Any:
    """A loss that is the output."""
    return outputs


def scalars(model: Any) -> List[float]:
    """The weights of layers that have one."""
    return [weight.item() for weight in model.get_weights()]


def stages_of(model: Any) -> List[Any]:
    """The stages of a model of any kind, call by call."""
    return [one.pipeline_stage for one in model.get_pipeline_stage_assignment()]


def momentum(config: RunConfig) -> RunConfig:
    """A configuration with Keras' momentum, whose velocity holds the learning rate."""
    return replace(config, optimizer=optimizer("sgd", momentum=0.5, rate_in_velocity=True))


def adam(config: RunConfig) -> RunConfig:
    """A configuration with Keras' Adam; the decays, and one less them, are exact in float32.

    Epsilon is in proportion to the moments: a smaller one makes whole steps of the rounding of vanishing gradients.
    """
    rule = optimizer("adam", beta1=0.5, beta2=0.75, epsilon=0.0078125, epsilon_at="uncorrected")
    return replace(config, optimizer=rule, learning_rate=learning_rate(base=0.0078125))


def still(config: RunConfig) -> RunConfig:
    """The same micro-batches with a learning rate of 0: the oracle's losses are those of the initial weights."""
    return replace(config, learning_rate=replace(config.learning_rate, settings=(("base", 0.0),)), stages=())


def mean_losses(config: RunConfig) -> Tuple[np.ndarray, np.ndarray]:
    """The oracle's mean loss over the steps so far, by step and replica, and how far each may be off.

    The mean of values that are each within their tolerance is within the mean of the tolerances; adding and dividing
    rounds once per value more.
    """
    losses, allowed = (
        np.reshape(each, (-1, config.replicas))
        for each in (expected("mlp", config).losses[0], tolerance("mlp", config).losses[0].allowed)
    )
    steps = np.arange(1, len(losses) + 1)[:, None]
    rounding = (steps + 1) * np.finfo(np.float32).eps * np.maximum.accumulate(np.abs(losses))
    return np.cumsum(losses, axis=0) / steps, np.cumsum(allowed, axis=0) / steps + rounding


def check_mean_loss(actual: Any, expected_mean: Any, bound: Any, what: str) -> None:
    """Mean losses are those of ``mean_losses``."""
    __tracebackhide__ = True
    origin = "the mean of the losses' tolerances and one rounding of float32 for each loss"
    allowed = run_tolerance.ArrayTolerance(np.asarray(bound), float(np.max(bound)), origin)
    check.close(actual=np.asarray(actual, np.float64), expected=expected_mean, tolerance=allowed, what=what)


def check_losses(actual: Any, config: RunConfig, what: str, place: Any = (-1, -1)) -> None:
    """A mean loss over steps is the oracle's: unless another place is given, the last replica's over all steps."""
    __tracebackhide__ = True
    means, bounds = mean_losses(config)
    check_mean_loss(actual, means[place], bounds[place], what)
