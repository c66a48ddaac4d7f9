"""The driver of TensorFlow: the suite's nets as Keras models, trained through the vendor's public API alone.

``native`` trains the same model with stock Keras, without any IPU API.

One step is one call of ``fit``, which is one execution. What each micro-batch gave is seen by metrics: with the output
mode "all" by asynchronous callbacks, with "final" by the synchronous ones, which see an execution's last step.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from ipu_conformance import frameworks
from ipu_conformance.frameworks import limits
from ipu_conformance.frameworks.tensorflow import models, rules
from ipu_conformance.frameworks.tensorflow.graphs import dump, program
from ipu_conformance.frameworks.tensorflow.models import AXES, LOGITS, LOSSES, Dtypes, KerasNet, images
from ipu_conformance.frameworks.tensorflow.ops import run_ops, why_inexpressible
from ipu_conformance.nets import Data, Net
from ipu_conformance.run import Array, RunConfig, RunRecord, Weights
from ipu_conformance.targets import Inspector, inspector

WEIGHTS = "weights"

__all__ = [
    "AXES",
    "build",
    "dataset",
    "dump",
    "images",
    "infer",
    "inspect",
    "ipus",
    "native",
    "run_ops",
    "supports",
    "train",
    "training",
    "why_inexpressible",
]


def ipus(config: RunConfig) -> int:
    """The IPUs that a configuration needs: those of a replica come in powers of two."""
    own = max(config.devices, default=config.number_of_stages - 1) + 1
    return (1 << (own - 1).bit_length()) * config.replicas


@contextmanager
def _scope(config: RunConfig) -> Iterator[None]:
    """The scope of a strategy on as many IPUs as a configuration needs, which are configured for it."""
    ipu = _vendor()
    system = ipu.config.IPUConfig()
    system.auto_select_ipus = ipus(config)
    system.allow_recompute = config.recompute
    if config.stochastic_rounding:
        system.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.ON
    system.configure_ipu_system()
    ipu.utils.reset_ipu_seed(config.seed)
    with ipu.ipu_strategy.IPUStrategy().scope():
        yield


@contextmanager
def build(
    net: Net, config: RunConfig, *, generation: str = "new", dtypes: Optional[Dtypes] = None, frozen: Sequence[str] = ()
) -> Iterator[KerasNet]:
    """The net as a compiled model with all options of a configuration, in the scope of a strategy.

    ``generation`` is that of the optimizers (see ``rules``), ``dtypes`` gives layers other dtypes than the
    configuration. The layers ``frozen`` keep their weights.
    """
    with _scope(config):
        yield _compiled_net(net, config, generation, dtypes, frozen)


def _compiled_net(
    net: Net, config: RunConfig, generation: str, dtypes: Optional[Dtypes], frozen: Sequence[str]
) -> KerasNet:
    stage = importlib.import_module("keras.ipu").PipelineStage if config.number_of_stages > 1 else None
    built = models.keras_net(net, config, stage, dtypes)
    model, accumulation = built.model, config.gradient_accumulation
    for name in frozen:
        model.get_layer(name).trainable = False
    _compile(built, config, 1, config.device_iterations * accumulation, generation)
    if stage is not None:
        chosen = _vendor().ops.pipelining_ops.PipelineSchedule
        model.set_pipelining_options(
            accumulation if config.training else None,
            device_mapping=list(config.devices) or None,
            gradient_accumulation_reduction_method=config.accumulation_reduction,
            pipeline_schedule=getattr(chosen, config.schedule.capitalize()),
            **(
                {}
                if config.accumulators == config.dtype
                else {"gradient_accumulation_dtype": tf.as_dtype(config.accumulators)}
            ),
        )
    elif accumulation > 1:
        model.set_gradient_accumulation_options(
            accumulation,
            gradient_accumulation_reduction_method=config.accumulation_reduction,
            **({} if config.accumulators == config.dtype else {"dtype": tf.as_dtype(config.accumulators)}),
        )
    frameworks.observe("tensorflow", model)
    model.set_replication_options("LIST")
    model.set_asynchronous_callbacks(config.training and config.output_mode == "all")
    return built


def train(
    net: Net,
    config: RunConfig,
    data: Data,
    *,
    generation: str = "new",
    dtypes: Optional[Dtypes] = None,
    frozen: Sequence[str] = (),
) -> RunRecord:
    """Train ``net`` with ``fit`` in a strategy's scope and record what the user of the API sees.

    The options are those of ``build``.
    """
    frameworks.require(supports(net, config, generation=generation))
    with training(net, config, generation=generation, dtypes=dtypes, frozen=frozen) as trainer:
        seen = [trainer.fit(data, step) for step in range(config.steps)]
        built = trainer.built
        trace = frameworks.trace("tensorflow", built.model, config.replicas)
    shown = {
        "weights_by_replica": _by_replica(built, built.trained, config),
        "statistics_by_replica": _by_replica(built, built.running, config),
        "ir": program(built),
        "trace": trace,
    }
    return _record(built, config, seen, **shown, **frameworks.origin("tensorflow", str(tf.__version__)))


class Trainer:
    """A compiled model in the scope of a strategy."""

    def __init__(self, built: KerasNet, config: RunConfig) -> None:
        self.built, self.config = built, config

    def fit(self, data: Data, step: int) -> Dict[str, Any]:
        """Losses, logits and the weights after one call of ``fit``."""
        seen = _fitted(self.built, self.config, data, step, self.config.micro_batch)
        # A batch on the device is one micro-batch.
        return {**seen, LOSSES: seen[LOSSES][..., 0], LOGITS: models.classes_first(self.built.net, seen[LOGITS])}

    def step(self, data: Data, step: int) -> Tuple[Array, Array]:
        """Losses and outputs of one call of ``fit``, at the learning rate of its step."""
        seen = self.fit(data, step)
        return seen[LOSSES], seen[LOGITS]

    def weights(self) -> Weights:
        """The trained weights as the user reads them."""
        return self.built.weights()

    def statistics(self) -> Optional[Weights]:
        """Batch norm's running statistics, None for a net that has none."""
        return self.built.statistics()

    def evaluate(self, data: Data, step: int = 0) -> Array:
        """The outputs of ``predict`` with what was learned so far."""
        return _predicted(self.built, self.config.inference(), data, step)

    def save(self, folder: Path) -> None:
        """Write the weights and the optimizer's state."""
        self.built.model.save_weights(str(folder / "checkpoint"))

    def load(self, folder: Path) -> None:
        """Go on from what ``save`` wrote; nothing has run yet."""
        self.built.model.load_weights(str(folder / "checkpoint"))


@contextmanager
def training(
    net: Net, config: RunConfig, *, generation: str = "new", dtypes: Optional[Dtypes] = None, frozen: Sequence[str] = ()
) -> Iterator[Trainer]:
    """The net as a compiled model, ready for ``fit``; the options are those of ``build``."""
    with build(net, config, generation=generation, dtypes=dtypes, frozen=frozen) as built:
        yield Trainer(built, config)


def infer(net: Net, config: RunConfig, data: Data, *, dtypes: Optional[Dtypes] = None) -> RunRecord:
    """Run ``net`` with ``predict`` in a strategy's scope, from its initial weights."""
    frameworks.require(supports(net, config))
    with build(net, config, dtypes=dtypes) as built:
        outputs = [_predicted(built, config, data, step) for step in range(config.steps)]
        trace = frameworks.trace("tensorflow", built.model, config.replicas)
    origin = frameworks.origin("tensorflow", str(tf.__version__))
    return RunRecord(config, net.name, (), tuple(outputs), trace=trace, **origin)


def native(net: Net, config: RunConfig, data: Data, *, generation: str = "new") -> RunRecord:
    """Train ``net`` with stock Keras: every update sees all its micro-batches as one large batch.

    The mean over the large batch is the mean of the micro-batches' means, unless batch norm tells them apart; where
    gradients are added up, the loss has that weight.
    """
    frameworks.require(supports(net, config, generation=generation))
    together = config.gradient_accumulation * config.replicas
    frameworks.require(
        frameworks.refusal(
            f"A native run of {net.name}",
            {
                "dropout": any(layer.op == "dropout" for layer in net.layers),
                f"batch norm of {together} micro-batches an update": bool(net.statistics) and together > 1,
                f"the output mode {config.output_mode}": config.output_mode != "all",
            },
        )
    )
    built = models.keras_net(net, config)
    weight = (config.gradient_accumulation if config.accumulation_reduction == "sum" else 1) * (
        config.replicas if config.replica_reduction == "sum" else 1
    )
    _compile(built, config, together, 1, generation, loss_weights=float(weight))
    batch = together * config.micro_batch
    seen = [_fitted(built, config, data, step, batch) for step in range(config.steps)]
    shaped = [
        {
            LOSSES: _turns(each[LOSSES].reshape(-1), config),
            LOGITS: _turns(_micro_batches(net, each[LOGITS], config), config),
            WEIGHTS: each[WEIGHTS],
        }
        for each in seen
    ]
    replica = {"weights_by_replica": (built.weights(),), "statistics_by_replica": (built.read(built.running),)}
    return _record(built, config, shaped, **replica, **frameworks.origin("tensorflow", str(tf.__version__), "native"))


def dataset(built: KerasNet, data: Data, step: int, batch: int) -> Any:
    """The samples of one step and, in training, their labels, in batches."""
    inputs = models.images(built.net, data.inputs[step])
    fed = inputs.astype(built.model.inputs[0].dtype.as_numpy_dtype), data.labels[step].astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(fed).batch(batch, drop_remainder=True)


class _Seeing(tf.keras.callbacks.Callback):
    """Keeps the losses and logits that callbacks are shown."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: List[Dict[str, Array]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keep what a step gave."""
        self.kept.append({name: np.array(logs[name], np.float64) for name in (LOSSES, LOGITS)})


def _compile(
    built: KerasNet, config: RunConfig, micro_batches: int, execution: int, generation: str, **settings: Any
) -> None:
    if config.training:
        optimizer = rules.optimizer(config, generation=generation)
        if config.decays:
            optimizer.exclude_from_weight_decay(var_list=[built.trained[name] for name, _ in config.decays])
        settings.update(
            optimizer=optimizer,
            loss=rules.loss(built.net),
            metrics=list(models.metrics(built.net, config, micro_batches)),
        )
    built.model.compile(steps_per_execution=execution, **settings)


def _fitted(built: KerasNet, config: RunConfig, data: Data, step: int, batch: int) -> Dict[str, Any]:
    """Losses and logits of the batches that callbacks see in one step, and the weights after it."""
    seeing = _Seeing()
    if config.rate_changes == "run" and step > 0:
        built.model.optimizer.learning_rate = rules.host_rate(config, step)
    built.model.fit(dataset(built, data, step, batch), verbose=0, callbacks=[seeing])
    if config.output_mode == "final":
        (only,) = seeing.kept
        shown = dict(only)
    else:
        shown = {name: np.stack([each[name] for each in seeing.kept]) for name in (LOSSES, LOGITS)}
    return {**shown, WEIGHTS: built.weights()}


def _predicted(built: KerasNet, config: RunConfig, data: Data, step: int) -> Array:
    predicted = built.model.predict(dataset(built, data, step, config.micro_batch), verbose=0)
    return _turns(_micro_batches(built.net, np.asarray(predicted, np.float64), config), config)


def _micro_batches(net: Net, logits: Array, config: RunConfig) -> Array:
    """The logits of a step's samples, a row for each micro-batch."""
    shape = (-1, config.micro_batch, *net.label_shape, net.classes)
    return models.classes_first(net, logits.reshape(shape))


def _turns(values: Array, config: RunConfig) -> Array:
    """Values of a step's micro-batches as TensorFlow returns them: an entry for each turn, of all replicas."""
    turns = config.device_iterations * config.gradient_accumulation
    axes = (turns, config.replicas) if config.replicas > 1 else (turns,)
    return values.reshape((*axes, *values.shape[1:]))


def _by_replica(built: KerasNet, variables: Mapping[str, Any], config: RunConfig) -> Optional[Tuple[Weights, ...]]:
    return frameworks.by_replica("tensorflow", built.model, variables, config.replicas, built.oriented)


def _record(built: KerasNet, config: RunConfig, seen: List[Dict[str, Any]], **fields: Any) -> RunRecord:
    optimizer = built.model.optimizer
    moving = {id(variable) for variable in built.model.trainable_variables}
    trained = {name: held for name, held in built.trained.items() if id(held) in moving}
    state = {
        word: {name: rules.sign(config.optimizer, word) * value for name, value in built.read(held).items()}
        for word, held in rules.states(optimizer, config.optimizer, trained).items()
    }
    return RunRecord(
        config,
        built.net.name,
        tuple(each[LOSSES] for each in seen),
        tuple(each[LOGITS] for each in seen),
        weights=seen[-1][WEIGHTS],
        weights_by_step=tuple(each[WEIGHTS] for each in seen),
        optimizer_state=state or None,
        updates=int(optimizer.iterations),
        statistics=built.statistics(),
        **fields,
    )


def supports(net: Net, config: RunConfig, *, generation: str = "new") -> Optional[str]:
    """Why TensorFlow cannot express a run, None if it can."""
    return limits.supports("tensorflow", net, config, generation=rules.actual(generation))


def inspect() -> Optional[Inspector]:
    """The target's door to what TensorFlow does not show."""
    return inspector("tensorflow")


def _vendor() -> Any:
    """The vendor's package, or whatever the target puts in its place."""
    return importlib.import_module("tensorflow.python.ipu")
