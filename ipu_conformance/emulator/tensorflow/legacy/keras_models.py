"""The models of ``ipu.keras`` in SDKs 1.2 to 2.1, which are Keras models of today with options and steps of then.

A step of theirs is one update of one replica: as many mini-batches as are accumulated. A run on the device is
``steps_per_run`` of them on every replica, all of an epoch unless told otherwise.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import tensorflow as tf

from ipu_conformance.emulator.core.topology import power_of_two
from ipu_conformance.emulator.tensorflow import legacy
from ipu_conformance.emulator.tensorflow.keras import extension, library
from ipu_conformance.emulator.tensorflow.legacy.keras_feeds import (
    EVALUATE,
    FIT,
    PREDICT,
    Call,
    batches,
    mini_batches,
    sorted_out,
)
from ipu_conformance.emulator.tensorflow.refusals import legacy as refusals
from ipu_conformance.emulator.tensorflow.run import strategy

UNSUPPORTED = (
    "sample_weight_mode", "weighted_metrics", "target_tensors", "distribute", "run_eagerly", "validation_split",
    "validation_data", "class_weight", "sample_weight", "validation_steps", "validation_freq", "max_queue_size",
    "workers", "use_multiprocessing",
)  # fmt: skip
"""Arguments of Keras' methods that these models never had."""

OLD_NAMES = {
    "accumulation_count": "gradient_accumulation_count",
    "accumulation_dtype": "gradient_accumulation_dtype",
    "pipeline_depth": "gradient_accumulation_count",
}
"""Options by their names in even earlier SDKs."""


def _renamed(kind: str, settings: Dict[str, Any]) -> Dict[str, Any]:
    """Options under the later of their names; the same option under both is refused."""
    for old, new in OLD_NAMES.items():
        if old in settings:
            refusals.TWO_NAMES(old=old, new=new, given=settings)
            settings = {**settings, new: settings[old]}
            del settings[old]
            tf.get_logger().warning("From %s: Argument '%s' is deprecated, use '%s' instead.", kind, old, new)
    return settings


class LegacyModel:
    """What the old models have in common: steps of accumulated mini-batches, and less than Keras takes."""

    gradient_accumulation_count: int
    gradient_accumulation_dtype: Any

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        loss_weights: Any = None,
        **kwargs: Any,
    ) -> None:
        """Set optimizer, loss and metrics; a word stands for an optimizer of the generation of then."""
        refusals.LOSS_WEIGHTS(weights=loss_weights)
        _refuse_unsupported("compile", kwargs)
        if isinstance(optimizer, (str, dict)):
            optimizer = tf.keras.optimizers.get(optimizer, use_legacy_optimizer=True)
        super().compile(optimizer, loss, metrics, loss_weights, **kwargs)  # type: ignore[misc]

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *,
        batch_size: Optional[int] = None,
        epochs: int = 1,
        verbose: Any = 1,
        callbacks: Any = None,
        shuffle: bool = True,
        initial_epoch: int = 0,
        steps_per_epoch: Optional[int] = None,
        steps_per_run: Optional[int] = None,
        prefetch_depth: Optional[int] = None,
        **kwargs: Any,
    ) -> Any:
        """Train: ``steps_per_epoch`` updates, over all replicas, in runs of ``steps_per_run`` on each; the history."""
        _refuse_unsupported("fit", kwargs)
        fed = self._fed(FIT, x, y, batch_size, steps_per_epoch, steps_per_run, prefetch_depth)
        rest = {"epochs": epochs, "verbose": verbose, "callbacks": callbacks, "initial_epoch": initial_epoch}
        return super().fit(**fed, **rest, shuffle=False, **kwargs)  # type: ignore[misc]

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        *,
        batch_size: Optional[int] = None,
        verbose: Any = 1,
        steps: Optional[int] = None,
        callbacks: Any = None,
        steps_per_run: Optional[int] = None,
        prefetch_depth: Optional[int] = None,
        **kwargs: Any,
    ) -> List[Any]:
        """The loss and the metrics in a list, of the loss alone too."""
        _refuse_unsupported("evaluate", kwargs)
        fed = self._fed(EVALUATE, x, y, batch_size, steps, steps_per_run, prefetch_depth)
        found = super().evaluate(**fed, verbose=verbose, callbacks=callbacks, **kwargs)  # type: ignore[misc]
        return found if isinstance(found, list) else [found]

    def predict(
        self,
        x: Any,
        *,
        batch_size: Optional[int] = None,
        verbose: Any = 0,
        steps: Optional[int] = None,
        callbacks: Any = None,
        steps_per_run: Optional[int] = None,
        prefetch_depth: Optional[int] = None,
        **kwargs: Any,
    ) -> Any:
        """The outputs of all mini-batches, one behind the other."""
        _refuse_unsupported("predict", kwargs)
        fed = self._fed(PREDICT, x, None, batch_size, steps, steps_per_run, prefetch_depth)
        return super().predict(**fed, verbose=verbose, callbacks=callbacks, **kwargs)  # type: ignore[misc]

    def save(self, *arguments: Any, **settings: Any) -> None:
        """Refuse: the models cannot be saved, their weights can."""
        refusals.OLD_SAVE(saves=True)

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        """Refuse, unless one of the methods calls."""
        refusals.OLD_CALL(model=type(self).__name__, running=self._ipu.running)  # type: ignore[attr-defined]
        return super().__call__(*arguments, **settings)  # type: ignore[misc]

    @property
    def shard_count(self) -> int:
        """The IPUs of a replica."""
        return power_of_two(max(self._ipu_mapping()) + 1)  # type: ignore[attr-defined]

    @property
    def replication_factor(self) -> int:
        """How often the model fits on the device of the strategy in scope."""
        refusals.OLD_DEVICE(model=type(self).__name__, strategy=strategy.current())
        return int(self._ipu_replicas())  # type: ignore[attr-defined]

    def _ipu_reduced(self, by_replica: List[Any]) -> Any:
        """The loss is the mean over replicas, a metric that of the last."""
        logs = dict(by_replica[-1])
        if "loss" in logs:
            logs["loss"] = tf.add_n([own["loss"] for own in by_replica]) / len(by_replica)
        return logs

    def _fed(
        self, call: Call, x: Any, y: Any, batch_size: Any, steps: Any, steps_per_run: Any, prefetch_depth: Any
    ) -> Dict[str, Any]:
        """What Keras' method is given of the data: mini-batches of whole runs on all replicas."""
        replicas = self.replication_factor
        arrays = not isinstance(x, tf.data.Dataset)
        refusals.OLD_BATCH_SIZE(model=type(self).__name__, method=call.method, size=batch_size, arrays=arrays)
        dataset = batches(x, y, batch_size) if arrays else x
        self._check_elements(call, dataset)
        dataset = sorted_out(dataset, *self._ends())
        number = int(dataset.cardinality())
        count = mini_batches(
            call, type(self).__name__, number if number >= 0 else None, steps, steps_per_run,
            self.gradient_accumulation_count, replicas, arrays,
        )  # fmt: skip
        self._run_steps((steps_per_run or count // self._group(replicas)) * self.gradient_accumulation_count)
        if prefetch_depth is not None:
            self.set_infeed_queue_options(prefetch_depth=prefetch_depth)  # type: ignore[attr-defined]
        if number == tf.data.INFINITE_CARDINALITY:
            return {"x": dataset, call.steps: count}
        # Every epoch begins with the first element again.
        return {"x": dataset.take(count).apply(tf.data.experimental.assert_cardinality(count))}

    def _group(self, replicas: int) -> int:
        return self.gradient_accumulation_count * replicas

    def _check_elements(self, call: Call, dataset: Any) -> None:
        inputs, outputs = self._ends()
        wanted = inputs + (0 if call is PREDICT else outputs)
        refusals.ELEMENTS(method=call.method, wanted=wanted, found=len(tf.nest.flatten(dataset.element_spec)))

    def _ends(self) -> Tuple[int, int]:
        """How many inputs and outputs the model has; a chain has one each."""
        return 1, 1

    def _run_steps(self, steps: int) -> None:
        """A run has so many mini-batches on every replica."""
        held = self._steps_per_execution  # type: ignore[attr-defined]
        if held is None:
            self._configure_steps_per_execution(steps)  # type: ignore[attr-defined]
        elif int(held) != steps:
            held.assign(steps)
            self.train_function = self.test_function = self.predict_function = None


def _refuse_unsupported(method: str, settings: Dict[str, Any]) -> None:
    refusals.OLD_ARGUMENTS(method=method, given=[name for name in UNSUPPORTED if name in settings])


def _remember(model: Any, count: int, dtype: Any) -> None:
    legacy.entered(f"ipu.keras.{type(model).__name__}")
    model.gradient_accumulation_count, model.gradient_accumulation_dtype = count, dtype


class Sequential(LegacyModel, extension.SequentialExtension, library.sequential_class()):  # type: ignore[misc]
    """A chain of layers that accumulates gradients."""

    def __init__(
        self,
        layers: Any = None,
        gradient_accumulation_count: int = 1,
        gradient_accumulation_dtype: Any = None,
        layer_replacement: bool = False,
        name: Optional[str] = None,
        **older: Any,
    ) -> None:
        given = _older(type(self).__name__, gradient_accumulation_count, gradient_accumulation_dtype, older)
        refusals.LAYERS(model=type(self).__name__, layers=layers, kind=tf.keras.layers.Layer)
        super().__init__(layers, name)
        _remember(self, *given)
        self.set_gradient_accumulation_options(given[0], dtype=given[1])


class Model(LegacyModel, extension.FunctionalExtension, library.functional_class()):  # type: ignore[misc]
    """A model of inputs and outputs that accumulates gradients."""

    def __init__(
        self,
        *args: Any,
        gradient_accumulation_count: int = 1,
        gradient_accumulation_dtype: Any = None,
        layer_replacement: bool = False,
        **kwargs: Any,
    ) -> None:
        older = {name: kwargs.pop(name) for name in OLD_NAMES if name in kwargs}
        given = _older(type(self).__name__, gradient_accumulation_count, gradient_accumulation_dtype, older)
        refusals.INPUTS_AND_OUTPUTS(args=args, named=[name for name in ("inputs", "outputs") if name in kwargs])
        super().__init__(*args, **kwargs)
        _remember(self, *given)
        self.set_gradient_accumulation_options(given[0], dtype=given[1])

    def _ends(self) -> Tuple[int, int]:
        return len(self.inputs), len(self.outputs)


def _older(kind: str, count: int, dtype: Any, older: Dict[str, Any]) -> Tuple[int, Any]:
    """Count and dtype of the accumulation, which may have been given under older names."""
    given = {"gradient_accumulation_count": count} if count != 1 else {}
    given.update({"gradient_accumulation_dtype": dtype} if dtype is not None else {})
    merged = _renamed(kind, {**given, **older})
    refusals.UNKNOWN_ARGUMENTS(model=kind, unknown=sorted(set(merged) - set(OLD_NAMES.values())))
    return merged.get("gradient_accumulation_count", 1), merged.get("gradient_accumulation_dtype")


PIPELINING = (
    "device_mapping", "pipeline_schedule", "recomputation_mode", "forward_propagation_stages_poplar_options",
    "backward_propagation_stages_poplar_options", "weight_update_poplar_options", "offload_weight_update_variables",
    "replicated_optimizer_state_sharding", "offload_activations", "offload_gradient_accumulation_buffers",
    "replicated_weight_sharding", "offload_weights",
)  # fmt: skip
"""Options that a pipeline has today under the same names."""


class Pipelined:
    """What both kinds of pipelines take besides their stages."""

    def _use_pipelining(self, options: Dict[str, Any]) -> None:
        options = _renamed(type(self).__name__, options)
        refusals.COUNT_NEEDED(model=type(self).__name__, count=options.get("gradient_accumulation_count"))
        count, dtype = options.pop("gradient_accumulation_count"), options.pop("gradient_accumulation_dtype", None)
        refusals.SERIALIZATION(iterations=options.pop("batch_serialization_iterations", 1))
        refusals.UNKNOWN_ARGUMENTS(model=type(self).__name__, unknown=sorted(set(options) - set(PIPELINING)))
        _remember(self, count, dtype)
        self.set_pipelining_options(  # type: ignore[attr-defined]
            count, gradient_accumulation_dtype=dtype, **{name: value for name, value in options.items() if value}
        )


class PipelineSequential(Pipelined, LegacyModel, extension.SequentialExtension, library.sequential_class()):  # type: ignore[misc]
    """A chain of stages, each a list of layers."""

    def __init__(
        self,
        stages: Any = None,
        gradient_accumulation_count: Optional[int] = None,
        gradient_accumulation_dtype: Any = None,
        *,
        layer_replacement: bool = False,
        name: Optional[str] = None,
        **options: Any,
    ) -> None:
        refusals.STAGES(stages=stages, kind=tf.keras.layers.Layer)
        super().__init__([layer for stage in stages for layer in stage], name)
        self.stages = [list(stage) for stage in stages]
        count = (
            {} if gradient_accumulation_count is None else {"gradient_accumulation_count": gradient_accumulation_count}
        )
        self._use_pipelining({**count, "gradient_accumulation_dtype": gradient_accumulation_dtype, **options})
        numbers = [number for number, stage in enumerate(stages) for layer in stage if layer in self.layers]
        self.set_pipeline_stage_assignment(numbers)


class PipelineModel(Pipelined, LegacyModel, extension.FunctionalExtension, library.functional_class()):  # type: ignore[misc]
    """A model whose calls of layers were made in PipelineStage scopes."""

    def __init__(self, *args: Any, layer_replacement: bool = False, **kwargs: Any) -> None:
        own = ("inputs", "outputs", "name", "trainable")
        named = {name: kwargs.pop(name) for name in own if name in kwargs}
        refusals.INPUTS_AND_OUTPUTS(args=args, named=[name for name in ("inputs", "outputs") if name in named])
        super().__init__(*args, **named)
        self._use_pipelining(kwargs)
        refusals.UNSTAGED(staged=self._ipu_pipelined())

    _ends = Model._ends


MODELS: Dict[str, Any] = {
    "Model": Model,
    "Sequential": Sequential,
    "PipelineModel": PipelineModel,
    "PipelineSequential": PipelineSequential,
    "SequentialPipelineModel": PipelineSequential,
    "PipelinedModel": PipelineSequential,
}
"""The models by the names that the SDKs gave them."""
