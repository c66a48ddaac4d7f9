"""What a model may be fed with, and how many steps that makes on each replica."""

from __future__ import annotations

import functools
from typing import Any, Optional

from ipu_conformance.emulator.faults.decisions import keras_model as decide
from ipu_conformance.emulator.tensorflow.keras import library


def warn(text: str, *numbers: int) -> None:
    import tensorflow as tf

    tf.get_logger().warning(text, *numbers)


def steps_per_replica(batches: int, replicas: int) -> int:
    """The steps of one replica; batches that do not fill a step of all replicas are dropped, with a warning."""
    steps = batches // replicas
    if steps == 0:
        raise ValueError(
            f"The data has {batches} batches, fewer than the {replicas} replicas that each take one per step: give "
            "more data or use fewer IPUs."
        )
    if decide("remainder-warned", batches % replicas):
        warn(
            "The number of batches (%d) is not divisible by the number of replicas (%d): the last %d batches of an "
            "epoch are not used.",
            batches,
            replicas,
            batches % replicas,
        )
    return int(decide("steps-per-replica", steps))


def steps_per_execution(asked: int, steps: int) -> int:
    """``asked``, cut to the steps there are; anything else must divide them."""
    if decide("execution-cut", asked > steps):
        warn(
            "`steps_per_execution` (%d) is larger than the number of steps (%d) of the data: it is set to %d.",
            asked,
            steps,
            steps,
        )
        return steps
    if decide("steps-divide", steps % asked):
        raise ValueError(
            f"`steps_per_execution` ({asked}) must be a divisor of the number of batches ({steps}) in the dataset "
            "provided: change `steps_per_execution` in `compile()`, the size of the data or the number of steps."
        )
    return asked


def check_accumulation(steps: int, count: int, *, pipelined: bool) -> None:
    """An execution has whole groups of accumulated micro-batches."""
    if decide("accumulation-divides", steps % count):
        what = "pipelined model" if pipelined else "model"
        raise RuntimeError(
            f"The {what} has been configured to use gradient accumulation for training, however the current "
            f"`steps_per_execution` value of {steps} (set in `compile()`) is not divisible by "
            f"`gradient_accumulation_steps_per_replica` ({count})."
        )


def check_adapter(adapter: Any) -> None:
    """Data comes as data sets, tensors or arrays, in whole batches."""
    adapters = library.module("engine.data_adapter")
    if isinstance(adapter, adapters.GeneratorDataAdapter) and decide("generators-refused", True):
        raise ValueError(
            "Python generators and Keras sequences cannot be fed to a model on the IPU: use a tf.data.Dataset, "
            "tensors or NumPy arrays."
        )
    if adapter.has_partial_batch() and decide("partial-batch-refused", True):
        raise ValueError(
            f"The number of samples is not a multiple of the batch size ({adapter.batch_size()}), and the last batch "
            f"would have {adapter.partial_batch_size()}: choose a batch size that divides the number of samples."
        )


def check_shapes(dataset: Any) -> None:
    """Every dimension of every element is known before the program is compiled."""
    import tensorflow as tf

    for spec in tf.nest.flatten(dataset.element_spec):
        if not spec.shape.is_fully_defined() and decide("shapes-checked", True):
            raise ValueError(
                f"Output shape {spec.shape} is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`."
            )


def narrowed(dataset: Any) -> Any:
    """The data set with float32 where it has float64."""
    import tensorflow as tf

    if not any(spec.dtype == tf.float64 for spec in tf.nest.flatten(dataset.element_spec)):
        return dataset
    if not decide("float64-narrowed", True):
        return dataset

    def narrow(tensor: Any) -> Any:
        return tf.cast(tensor, tf.float32) if tensor.dtype == tf.float64 else tensor

    def each(*element: Any) -> Any:
        cast = tf.nest.map_structure(narrow, element)
        return cast if len(cast) > 1 else cast[0]

    return dataset.map(each)


def _without_remainder(dataset: Any, batches: int, replicas: int) -> Any:
    """Epochs that follow one another in one data set, each without the batches that fill no step of all replicas."""
    kept = batches - decide("remainder-of-epoch", batches % replicas)
    return dataset.enumerate().filter(lambda number, _: number % batches < kept).map(lambda _, element: element)


@functools.lru_cache(maxsize=None)
def handler_class() -> Any:
    """Keras' own handler of data with the rules of the IPU."""

    class IPUDataHandler(library.module("engine.data_adapter").DataHandler):  # type: ignore[misc]
        """Counts steps per replica, and keeps ``steps_per_execution`` a divisor of them."""

        def __init__(self, *arguments: Any, training: bool, **settings: Any) -> None:
            self._training = training
            super().__init__(*arguments, **settings)

        _dataset: Any
        _inferred_steps: Any

        def _configure_dataset_and_inferred_steps(
            self, strategy: Any, x: Any, steps_per_epoch: Optional[int], class_weight: Any, distribute: bool
        ) -> None:
            check_adapter(self._adapter)
            super()._configure_dataset_and_inferred_steps(strategy, x, steps_per_epoch, class_weight, distribute)
            self._dataset = narrowed(self._dataset)
            check_shapes(self._dataset)
            batches = self._inferred_steps
            if batches is None and decide("size-known", True):
                raise ValueError(
                    "The size of the data is unknown: pass the number of steps (`steps_per_epoch`, `steps` or "
                    "`validation_steps`)."
                )
            self._model._ipu_meet(self._dataset.element_spec)
            replicas = self._model._ipu_replicas()
            self._inferred_steps = steps_per_replica(batches, replicas)
            if batches % replicas and not self._adapter.should_recreate_iterator() and steps_per_epoch is None:
                self._dataset = _without_remainder(self._dataset, batches, replicas)
            depth = self._model._ipu.infeed.get("prefetch_depth")
            if isinstance(depth, int):
                self._dataset = self._dataset.prefetch(depth)
            self._model._ipu.steps_of_epoch = self._inferred_steps
            self._fit_execution()

        def _infer_steps(self, steps: Optional[int], dataset: Any) -> Optional[int]:
            """Steps of one replica wherever Keras counts them again, between epochs."""
            found: Optional[int] = super()._infer_steps(steps, dataset)
            if self._model is None or found is None or not hasattr(self, "_dataset"):
                return found
            return int(decide("steps-per-replica", found // int(self._model._ipu_replicas())))

        def _fit_execution(self) -> None:
            asked = int(self._steps_per_execution.numpy())
            execution = steps_per_execution(asked, self._inferred_steps)
            self._step_increment = execution - 1
            self._model._ipu_check_execution(execution, training=self._training)

    return IPUDataHandler


def handle(make: Any, *arguments: Any, **settings: Any) -> Any:
    """The handler for a model on the IPU, and Keras' own for any other."""
    model = settings.get("model")
    if model is None or not hasattr(model, "_ipu_replicas"):
        return make(*arguments, **settings)
    # Keras shuffles nothing but what it trains on.
    return handler_class()(*arguments, training="shuffle" in settings, **settings)
