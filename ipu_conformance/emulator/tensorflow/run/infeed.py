"""Infeeds: a data set from which loops and pipelines on the device take their elements."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.ops import gen_dataset_ops, gen_resource_variable_ops
from tensorflow.python.platform import tf_logging as logging

from ipu_conformance.emulator.tensorflow.refusals import ops as refusals
from ipu_conformance.emulator.tensorflow.run import replicas, synthetic
from ipu_conformance.emulator.tensorflow.run.queues import of_any_sdk

DEPRECATED = ("feed_name", "replication_factor", "data_to_prefetch")


def check_shapes(element_spec: Any) -> None:
    """Everything that the device is fed has a shape that is known when it is compiled."""
    for leaf in tf.nest.flatten(element_spec, expand_composites=True):
        refusals.UNKNOWN_SHAPE(shape=leaf.shape)


class IPUInfeedQueue:
    """Feeds a data set to the device: in iteration i replica r of R takes element i·R + r."""

    @of_any_sdk("IPUInfeedQueue")
    def __init__(
        self,
        dataset: Any,
        device_ordinal: Optional[int] = None,
        prefetch_depth: Optional[int] = None,
        optimise_latency: bool = False,
        **kwargs: Any,
    ) -> None:
        unknown = [name for name in kwargs if name not in DEPRECATED]
        if unknown:
            raise TypeError(f"IPUInfeedQueue has no argument {unknown[0]!r}.")
        for name in kwargs:
            logging.warning(f"`{name}` of IPUInfeedQueue is deprecated and has no effect.")
        refusals.PREFETCH_DEPTH(depth=prefetch_depth)
        check_shapes(dataset.element_spec)
        self._dataset = dataset
        self.element_spec = dataset.element_spec
        self.device_ordinal = device_ordinal or 0
        self._dequeued = False
        self._initialised = False
        self._eager = tf.executing_eagerly()
        with tf.init_scope(), tf.device("/device:CPU:0"):
            if tf.executing_eagerly():
                self._iterator = iter(dataset)
            else:
                self._iterator = tf.compat.v1.data.make_initializable_iterator(dataset)

    @property
    def number_of_tuple_elements(self) -> int:
        """With how many arguments a loop calls its body for an element, however many tensors they hold."""
        spec = self.element_spec
        return len(spec) if isinstance(spec, (dict, list, tuple)) else 1

    @property
    def dequeued(self) -> bool:
        """Whether some program takes elements from this queue."""
        return self._dequeued

    @property
    def initializer(self) -> Any:
        """The operation that a session runs before the first element is taken; it can be asked for once.

        In eager mode asking for it begins with the first element again.
        """
        if self._eager:
            variant, resource = self._dataset._variant_tensor, self._iterator._iterator_resource
            return gen_dataset_ops.make_iterator(variant, resource)
        refusals.SECOND_INITIALIZER(initialised=self._initialised)
        self._initialised = True
        return self._iterator.initializer

    @property
    def deleter(self) -> Any:
        """The operation that frees what the queue holds; in eager mode it is done at once."""
        return gen_resource_variable_ops.destroy_resource_op(
            self._iterator._iterator_resource, ignore_lookup_error=True
        )

    def get_next(self) -> Any:
        """Refuses to be called: loops and pipelines take elements by themselves."""
        raise ValueError(
            "`get_next()` is obsolete: pass the IPUInfeedQueue to a loop or a pipeline, which dequeues it."
        )

    def _dequeue(self) -> Any:
        """The next element of the replica that is being built."""
        self._dequeued = True
        return replicas.exchange(None, lambda everyone: self._elements(len(everyone)), "IPUInfeedQueue")

    def _elements(self, number: int) -> List[Any]:
        """The next elements, one for each replica."""
        source = synthetic.instead_of(self._iterator)
        return [source.get_next() for _ in range(number)]


class IPUOwnedIterator(iterator_ops.OwnedIterator):
    """An iterator for functions that a strategy runs: replicas take its elements in turns."""

    def __init__(self, dataset: Any = None, infeed_spec: Any = None, element_spec: Any = None, **kwargs: Any) -> None:
        if dataset is not None:
            check_shapes(dataset.element_spec)
        self._infeed_spec = infeed_spec
        super().__init__(dataset, infeed_spec, element_spec)

    @property
    def infeed_spec(self) -> Any:
        """What the iterator was made from instead of a data set; None if it was made from one."""
        return self._infeed_spec


class IPUIterator(IPUOwnedIterator):
    """An iterator over a data set; it can only be made where operations are executed at once."""

    def __init__(self, dataset: Any = None, infeed_spec: Any = None, element_spec: Any = None, **kwargs: Any) -> None:
        if not tf.executing_eagerly():
            raise RuntimeError("IPUIterator can only be made in eager mode: use an IPUInfeedQueue in a graph.")
        super().__init__(dataset, infeed_spec, element_spec, **kwargs)
