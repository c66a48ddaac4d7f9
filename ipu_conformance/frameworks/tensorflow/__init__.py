"""The driver of TensorFlow: the suite's nets as Keras models, trained through the vendor's public API alone.

``native`` trains the same model with stock Keras, without any IPU API. Where the target is the emulator, the record of
``train`` also holds each replica's weights.

One step is one call of ``fit``, which is one execution. What each micro-batch gave is seen by metrics: with the output
mode "all" by asynchronous callbacks, with "final" by the synchronous ones, which see an execution's last step.
"""

from __future__ import annotations

import importlib
import os
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional

import numpy as np
import tensorflow as tf

from ipu_conformance.frameworks.tensorflow import models, rules
from ipu_conformance.frameworks.tensorflow.models import LOGITS, LOSSES, Built, Dtypes
from ipu_conformance.nets import Data, Net
from ipu_conformance.oracle.training import schedules
from ipu_conformance.run import Array, RunConfig, RunError, RunRecord

WEIGHTS = "weights"

__all__ = ["built_on_device", "dataset", "infer", "ipus", "native", "scope", "train"]


def ipus(config: RunConfig) -> int:
    """The IPUs that a configuration needs: those of a replica come in powers of two."""
    own = max(config.devices, default=config.number_of_stages - 1) + 1
    return (1 << (own - 1).bit_length()) * config.replicas


@contextmanager
def scope(config: RunConfig) -> Iterator[Any]:
    """The scope of a strategy on as many IPUs as a configuration needs, which are configured for it."""
    ipu = _vendor()
    system = ipu.config.IPUConfig()
    system.auto_select_ipus = ipus(config)
    system.allow_recompute = config.recompute
    if config.stochastic_rounding:
        system.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.ON
    system.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        yield strategy


def built_on_device(net: Net, config: RunConfig, *, legacy: bool = False, dtypes: Optional[Dtypes] = None) -> Built:
    """The net as a compiled model with all options of a configuration, inside the scope of a strategy."""
    stage = importlib.import_module("keras.ipu").PipelineStage if config.number_of_stages > 1 else None
    made = models.built(net, config, stage, dtypes)
    model, accumulation = made.model, config.gradient_accumulation
    _compile(made, config, 1, config.device_iterations * accumulation, legacy)
    if stage is not None:
        chosen = _vendor().ops.pipelining_ops.PipelineSchedule
        model.set_pipelining_options(
            accumulation if config.training else None,
            device_mapping=list(config.devices) or None,
            gradient_accumulation_reduction_method=config.accumulation_reduction,
            pipeline_schedule=getattr(chosen, config.schedule.capitalize()),
        )
    elif accumulation > 1:
        model.set_gradient_accumulation_options(
            accumulation, gradient_accumulation_reduction_method=config.accumulation_reduction
        )
    model.set_replication_options("LIST")
    model.set_asynchronous_callbacks(config.training and config.output_mode == "all")
    return made


def train(
    net: Net, config: RunConfig, data: Data, *, legacy: bool = False, dtypes: Optional[Dtypes] = None
) -> RunRecord:
    """Train ``net`` with ``fit`` in a strategy's scope and record what the user of the API sees.

    ``legacy`` chooses the older generation of optimizers, ``dtypes`` gives layers other dtypes than the configuration.
    """
    _require(net, config, legacy)
    with scope(config):
        made = built_on_device(net, config, legacy=legacy, dtypes=dtypes)
        seen = [_fitted(made, config, data, step, config.micro_batch) for step in range(config.steps)]
    # A batch on the device is one micro-batch.
    seen = [{**each, LOSSES: each[LOSSES][..., 0]} for each in seen]
    return _record(made, config, seen, **_where())


def infer(net: Net, config: RunConfig, data: Data, *, dtypes: Optional[Dtypes] = None) -> RunRecord:
    """Run ``net`` with ``predict`` in a strategy's scope, from its initial weights."""
    _require(net, config, legacy=False)
    outputs: List[Array] = []
    with scope(config):
        made = built_on_device(net, config, dtypes=dtypes)
        for step in range(config.steps):
            predicted = made.model.predict(dataset(made, data, step, config.micro_batch), verbose=0)
            micro_batches = np.asarray(predicted, np.float64).reshape((-1, config.micro_batch, net.classes))
            outputs.append(_turns(micro_batches, config))
    return RunRecord(config, net.name, (), tuple(outputs), **_where())


def native(net: Net, config: RunConfig, data: Data, *, legacy: bool = False) -> RunRecord:
    """Train ``net`` with stock Keras: every update sees all its micro-batches as one large batch.

    The mean over the large batch is the mean of the micro-batches' means, unless batch norm tells them apart; where
    gradients are added up, the loss has that weight.
    """
    _require(net, config, legacy)
    together = config.gradient_accumulation * config.replicas
    if net.statistics and together > 1:
        raise RunError(f"{net.name} has batch norm, whose {together} micro-batches an update cannot be one batch.")
    if any(layer.op == "dropout" for layer in net.layers) or config.output_mode != "all":
        raise RunError(f"{net.name} with {config} has no native run: leave out dropout and return all outputs.")
    made = models.built(net, config)
    weight = (config.gradient_accumulation if config.accumulation_reduction == "sum" else 1) * (
        config.replicas if config.replica_reduction == "sum" else 1
    )
    _compile(made, config, together, 1, legacy, loss_weights=float(weight))
    batch = together * config.micro_batch
    seen = [_fitted(made, config, data, step, batch) for step in range(config.steps)]
    shaped = [
        {
            LOSSES: _turns(each[LOSSES].reshape(-1), config),
            LOGITS: _turns(each[LOGITS].reshape((-1, config.micro_batch, net.classes)), config),
            WEIGHTS: each[WEIGHTS],
        }
        for each in seen
    ]
    return _record(made, config, shaped, framework="tensorflow", target="native", environment=_versions())


def dataset(made: Built, data: Data, step: int, batch: int) -> Any:
    """The samples of one step and, in training, their labels, in batches."""
    inputs = models.images(made.net, data.inputs[step])
    fed = inputs.astype(made.model.inputs[0].dtype.as_numpy_dtype), data.labels[step].astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(fed).batch(batch, drop_remainder=True)


class _Seeing(tf.keras.callbacks.Callback):
    """Keeps the losses and logits that callbacks are shown."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: List[Dict[str, Array]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keep what a step gave."""
        self.kept.append({name: np.array(logs[name], np.float64) for name in (LOSSES, LOGITS)})


def _compile(made: Built, config: RunConfig, micro_batches: int, execution: int, legacy: bool, **settings: Any) -> None:
    if config.training:
        settings.update(
            optimizer=rules.optimizer(config, legacy=legacy),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=list(models.metrics(made.net, config, micro_batches)),
        )
    made.model.compile(steps_per_execution=execution, **settings)


def _fitted(made: Built, config: RunConfig, data: Data, step: int, batch: int) -> Dict[str, Any]:
    """Losses and logits of the batches that callbacks see in one step, and the weights after it."""
    seeing = _Seeing()
    if config.rate_changes == "run" and step > 0:
        made.model.optimizer.learning_rate = schedules.rate(config.learning_rate, step)
    made.model.fit(dataset(made, data, step, batch), verbose=0, callbacks=[seeing])
    if config.output_mode == "final":
        (only,) = seeing.kept
        found = dict(only)
    else:
        found = {name: np.stack([each[name] for each in seeing.kept]) for name in (LOSSES, LOGITS)}
    return {**found, WEIGHTS: made.read(made.held)}


def _turns(values: Array, config: RunConfig) -> Array:
    """Values of a step's micro-batches as TensorFlow returns them: an entry for each turn, of all replicas."""
    turns = config.device_iterations * config.gradient_accumulation
    axes = (turns, config.replicas) if config.replicas > 1 else (turns,)
    return values.reshape((*axes, *values.shape[1:]))


def _record(made: Built, config: RunConfig, seen: List[Dict[str, Any]], **where: Any) -> RunRecord:
    optimizer, known = made.model.optimizer, where["target"] in ("emulator", "native")
    replicas = range(config.replicas if where["target"] == "emulator" else 1)
    state = {
        word: {name: rules.sign(config.optimizer, word) * value for name, value in made.read(held).items()}
        for word, held in rules.states(optimizer, config.optimizer, made.held).items()
    }
    return RunRecord(
        config,
        made.net.name,
        tuple(each[LOSSES] for each in seen),
        tuple(each[LOGITS] for each in seen),
        weights=seen[-1][WEIGHTS],
        weights_by_replica=tuple(made.read(made.held, replica) for replica in replicas) if known else None,
        weights_by_step=tuple(each[WEIGHTS] for each in seen),
        optimizer_state=state or None,
        updates=int(optimizer.iterations),
        statistics=made.read(made.statistics) or None,
        statistics_by_replica=tuple(made.read(made.statistics, replica) for replica in replicas) if known else None,
        **where,
    )


def _require(net: Net, config: RunConfig, legacy: bool) -> None:
    cut = config.number_of_stages > 1
    unable = {
        **(rules.inexpressible(config, legacy=legacy) if config.training else {}),
        "a mean over replicas in fit": config.replicas > 1 and config.replica_reduction == "mean",
        f"the output layout of {config.output_layout}": config.output_layout != "tensorflow",
        "sums of outputs in fit": config.output_mode == "sum",
        "one update for several pipeline runs": config.update == "run" and config.device_iterations > 1,
        "an update before a pipeline is empty": config.update == "micro_batch",
        "batch norm of images with a biased running variance": bool(net.statistics) and not config.unbiased_statistics,
        "partial sums in half precision": config.partials != "float32",
        # Keras' own optimizer for it refuses strategies that it does not know.
        "loss scaling": config.loss_scale != 1.0,
        "a device for each stage of one": bool(config.devices) and not cut,
    }
    for what, asked in unable.items():
        if asked:
            raise RunError(f"TensorFlow does not do {what}: choose another configuration for it.")


def _vendor() -> Any:
    """The vendor's package, or whatever the target puts in its place."""
    return importlib.import_module("tensorflow.python.ipu")


def _versions() -> Dict[str, str]:
    return {"tensorflow": str(tf.__version__)}


def _where() -> Dict[str, Any]:
    emulated = _vendor().__name__.startswith("ipu_conformance")
    model = "use_ipu_model" in os.environ.get("TF_POPLAR_FLAGS", "")
    target = "emulator" if emulated else "ipu-model" if model else "hardware"
    return {"framework": "tensorflow", "target": target, "environment": _versions()}
