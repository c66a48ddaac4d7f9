"""What a model may be fed with, and how many steps that makes on each replica."""

from __future__ import annotations

import functools
from typing import Any, Optional

from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.refusals import keras as refusals


def warn(text: str, *numbers: int) -> None:
    import tensorflow as tf

    tf.get_logger().warning(text, *numbers)


def steps_per_replica(batches: int, replicas: int) -> int:
    """The steps of one replica; batches that do not fill a step of all replicas are dropped, with a warning."""
    refusals.TOO_FEW_BATCHES(batches=batches, replicas=replicas)
    if batches % replicas:
        warn(
            "The number of batches (%d) is not divisible by the number of replicas (%d): the last %d batches of an "
            "epoch are not used.",
            batches,
            replicas,
            batches % replicas,
        )
    return whole_steps(batches, replicas)


def whole_steps(batches: int, replicas: int) -> int:
    """The steps that batches make when every replica takes one in each."""
    return batches // replicas


def steps_per_execution(asked: int, steps: int) -> int:
    """``asked``, cut to the steps there are; anything else must divide them."""
    if asked > steps:
        warn(
            "`steps_per_execution` (%d) is larger than the number of steps (%d) of the data: it is set to %d.",
            asked,
            steps,
            steps,
        )
        return steps
    refusals.UNEVEN_EXECUTION(asked=asked, steps=steps)
    return asked


def check_accumulation(steps: int, count: int, *, pipelined: bool) -> None:
    """An execution has whole groups of accumulated micro-batches."""
    what = "pipelined model" if pipelined else "model"
    refusals.UNEVEN_ACCUMULATION(steps=steps, count=count, what=what)


def check_adapter(adapter: Any) -> None:
    """Data comes as data sets, tensors or arrays, in whole batches."""
    generators = library.module("engine.data_adapter").GeneratorDataAdapter
    refusals.GENERATOR(generated=isinstance(adapter, generators))
    rest = adapter.partial_batch_size() if adapter.has_partial_batch() else 0
    refusals.PARTIAL_BATCH(size=adapter.batch_size(), rest=rest)


def check_shapes(dataset: Any) -> None:
    """Every dimension of every element is known before the program is compiled."""
    import tensorflow as tf

    for spec in tf.nest.flatten(dataset.element_spec):
        refusals.UNKNOWN_SHAPE(shape=spec.shape)


def narrowed(dataset: Any) -> Any:
    """The data set with float32 where it has float64."""
    import tensorflow as tf

    if not any(spec.dtype == tf.float64 for spec in tf.nest.flatten(dataset.element_spec)):
        return dataset

    def narrow(tensor: Any) -> Any:
        return tf.cast(tensor, tf.float32) if tensor.dtype == tf.float64 else tensor

    def each(*element: Any) -> Any:
        cast = tf.nest.map_structure(narrow, element)
        return cast if len(cast) > 1 else cast[0]

    return dataset.map(each)


def _without_remainder(dataset: Any, batches: int, replicas: int) -> Any:
    """Epochs that follow one another in one data set, each without the batches that fill no step of all replicas."""
    kept = batches - batches % replicas
    return dataset.enumerate().filter(lambda number, _: number % batches < kept).map(lambda _, element: element)


def _as_written(dataset: Any) -> Any:
    """A data set whose steps the host neither rewrites nor tunes, which takes longer than a few batches do.

    What the program has asked for stays.
    """
    import tensorflow as tf

    asked, options = dataset.options(), tf.data.Options()
    if asked.autotune.enabled is None:
        options.autotune.enabled = False
    if asked.experimental_optimization.apply_default_optimizations is None:
        options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


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
            refusals.UNKNOWN_SIZE(batches=batches)
            self._model._ipu_meet(self._dataset.element_spec)
            replicas = self._model._ipu_replicas()
            self._inferred_steps = steps_per_replica(batches, replicas)
            if batches % replicas and not self._adapter.should_recreate_iterator() and steps_per_epoch is None:
                self._dataset = _without_remainder(self._dataset, batches, replicas)
            depth = self._model._ipu.infeed.get("prefetch_depth")
            if isinstance(depth, int):
                self._dataset = self._dataset.prefetch(depth)
            self._dataset = _as_written(self._dataset)
            self._model._ipu.steps_of_epoch = self._inferred_steps
            self._fit_execution()

        def _infer_steps(self, steps: Optional[int], dataset: Any) -> Optional[int]:
            """Steps of one replica wherever Keras counts them again, between epochs."""
            found: Optional[int] = super()._infer_steps(steps, dataset)
            if self._model is None or found is None or not hasattr(self, "_dataset"):
                return found
            return whole_steps(found, int(self._model._ipu_replicas()))

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
