"""Tables that stay on the host: every replica looks rows up in the same one, and updates it in the backward pass."""

from __future__ import annotations

import contextlib
from typing import Any, List, Optional

import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops, resource_variable_ops

from ipu_conformance.emulator.tensorflow.refusals import ops as refusals
from ipu_conformance.emulator.tensorflow.run import replicas

STRATEGIES = ("TOKEN", "ENCODING")


class HostEmbeddingOptimizerSpec:
    """How a table is updated: its rows lose their gradients times a learning rate; 0 is a table that is not trained."""

    def __init__(self, learning_rate: Any, optimizer_name: Optional[str] = None) -> None:
        self._learning_rate = learning_rate
        self._optimizer_name = optimizer_name or "SGD"

    def get_learning_rate(self) -> Any:
        """The learning rate."""
        return self._learning_rate

    def create_lookup_instruction(
        self, embedding_tensor: Any, indices: Any, slot_vars: Any, partition_strategy: str, name: str
    ) -> Any:
        """The rows of the table; where it is trained, a scalar ``__dummy`` that is trainable carries the gradient."""
        if isinstance(self._learning_rate, (int, float)) and self._learning_rate == 0:
            return tf.stop_gradient(_rows(embedding_tensor, indices))
        with tf.compat.v1.variable_scope(name, reuse=tf.compat.v1.AUTO_REUSE):
            dummy = tf.compat.v1.get_variable(
                "__dummy", [], embedding_tensor.dtype.base_dtype, tf.compat.v1.zeros_initializer(), use_resource=True
            )

        @tf.custom_gradient
        def looked_up(carrier: Any, places: Any) -> Any:
            def backward(gradient: Any) -> Any:
                done = replicas.exchange(
                    (places, gradient),
                    lambda everyone: self._updates(embedding_tensor, everyone),
                    f"an update of {name}",
                )
                with tf.control_dependencies([done]):
                    return tf.zeros_like(carrier), None

            return _rows(embedding_tensor, places), backward

        return looked_up(tf.convert_to_tensor(dummy), indices)

    def _updates(self, table: Any, everyone: List[Any]) -> List[Any]:
        """One update of the table with the gradients of all replicas; the same for each."""
        places, gradients = (tf.concat(parts, 0) for parts in zip(*everyone))
        return [self._updated(table, places, gradients)] * len(everyone)

    def _updated(self, table: Any, places: Any, gradients: Any) -> Any:
        change = -tf.cast(self._learning_rate, gradients.dtype) * gradients
        return gen_resource_variable_ops.resource_scatter_add(table._handle, places, change)

    def create_register_instruction(self, embedding_tensor: Any, slot_vars: Any, name: str) -> Any:
        """What connects the table with the device: nothing has to be done here."""
        return tf.no_op()

    def create_deregister_instruction(self, embedding_tensor: Any, slot_vars: Any, name: str) -> Any:
        """What takes the connection back: nothing has to be done here."""
        return tf.no_op()

    def create_slot_variables(self, embedding_tensor: Any, name: str) -> List[Any]:
        """The variables that the optimizer needs besides the table: none that a program sees."""
        return []


class HostEmbeddingSGDGAOptimizerSpec(HostEmbeddingOptimizerSpec):
    """How a table is updated once for the gradients of several mini-batches, which are added up."""

    def __init__(self, learning_rate: Any, accumulation_factor: int) -> None:
        if isinstance(accumulation_factor, bool) or not isinstance(accumulation_factor, int) or accumulation_factor < 1:
            raise ValueError(f"`accumulation_factor` is {accumulation_factor!r}; use a whole number from 1 on.")
        super().__init__(learning_rate, "SGD+GA" if accumulation_factor > 1 else None)
        self._accumulation_factor = accumulation_factor

    def get_accumulation_factor(self) -> int:
        """After how many mini-batches the table is updated."""
        return self._accumulation_factor

    def _updated(self, table: Any, places: Any, gradients: Any) -> Any:
        if self._accumulation_factor == 1:
            return super()._updated(table, places, gradients)
        total, count = _kept(table, "accumulated", table.shape, gradients.dtype), _kept(table, "count", [], tf.int32)
        summed = tf.tensor_scatter_nd_add(_read(total), places[:, tf.newaxis], gradients)
        number = _read(count) + 1
        full = number >= self._accumulation_factor
        change = tf.where(full, -tf.cast(self._learning_rate, summed.dtype) * summed, tf.zeros_like(summed))
        writes = [
            gen_resource_variable_ops.assign_add_variable_op(table._handle, change),
            gen_resource_variable_ops.assign_variable_op(total._handle, tf.where(full, tf.zeros_like(summed), summed)),
            gen_resource_variable_ops.assign_variable_op(count._handle, tf.where(full, 0, number)),
        ]
        return tf.group(*(write for write in writes if write is not None))


def _rows(table: Any, places: Any) -> Any:
    """Rows of the host's own variable: replicas have no copies of it."""
    return gen_resource_variable_ops.resource_gather(table._handle, places, table.dtype.base_dtype)


def _kept(table: Any, name: str, shape: Any, dtype: Any) -> Any:
    """A variable beside a table that no collection holds; it is 0 until it is written."""
    held = table.__dict__.setdefault("_ipu_kept", {})
    if name not in held:
        with tf.init_scope():
            held[name] = resource_variable_ops.ResourceVariable(
                tf.zeros(shape, dtype), trainable=False, collections=[], name=f"{table.name.split(':')[0]}_{name}"
            )
    return held[name]


def _read(variable: Any) -> Any:
    handle, dtype = variable._handle, variable.dtype.base_dtype
    return tf.cond(
        gen_resource_variable_ops.var_is_initialized_op(handle),
        lambda: gen_resource_variable_ops.read_variable_op(handle, dtype),
        lambda: tf.zeros(variable.shape, dtype),
    )


class HostEmbedding:
    """A table [tokens, encoding] on the host, and how it is updated; without a specification it is not trained."""

    def __init__(
        self,
        name: str,
        embedding_tensor: Any,
        partition_strategy: str = "TOKEN",
        optimizer_spec: Optional[HostEmbeddingOptimizerSpec] = None,
    ) -> None:
        refusals.HOST_TABLE(table=embedding_tensor, variable=hasattr(embedding_tensor, "_handle"))
        refusals.HOST_SPEC(spec=optimizer_spec, kind=HostEmbeddingOptimizerSpec)
        refusals.HOST_PARTITION(strategy=partition_strategy, strategies=STRATEGIES)
        self._name = name
        self._embedding_tensor = embedding_tensor
        self._partition_strategy = partition_strategy
        self._optimizer_spec = optimizer_spec or HostEmbeddingOptimizerSpec(0)
        self._slot_vars = self._optimizer_spec.create_slot_variables(embedding_tensor, name)

    def get_embedding_tensor(self) -> Any:
        """The table."""
        return self._embedding_tensor

    def register(self, session: Any = None) -> HostEmbeddingScope:
        """A context in which the device may use the table; in a graph it belongs to a session."""
        refusals.HOST_SESSION(session=session, eager=tf.executing_eagerly())
        return HostEmbeddingScope(self, session)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: earlier SDKs served the table by a call."""
        refusals.HOST_CALL(called=True)

    def lookup(self, indices: Any, clip_indices: bool = True) -> Any:
        """The rows of the indices, which are clipped to those that there are."""
        indices, table = tf.convert_to_tensor(indices), self._embedding_tensor
        if clip_indices:
            indices = tf.clip_by_value(indices, 0, table.shape[0] - 1)
        rows = self._optimizer_spec.create_lookup_instruction(
            table, tf.reshape(indices, [-1]), self._slot_vars, self._partition_strategy, self._name
        )
        return tf.reshape(rows, [*indices.shape.as_list(), table.shape[1]])


class HostEmbeddingScope(contextlib.AbstractContextManager):
    """The time in which a table is connected with the device."""

    def __init__(self, parent: HostEmbedding, session: Any = None) -> None:
        self._parent, self._session = parent, session

    def __enter__(self) -> HostEmbedding:
        self._run("create_register_instruction")
        return self._parent

    def __exit__(self, *error: Any) -> None:
        self._run("create_deregister_instruction")

    def _run(self, instruction: str) -> None:
        parent = self._parent
        made = getattr(parent._optimizer_spec, instruction)(parent._embedding_tensor, parent._slot_vars, parent._name)
        if self._session is not None:
            self._session.run(made)


def create_host_embedding(
    name: str,
    shape: Any,
    dtype: Any,
    partition_strategy: str = "TOKEN",
    optimizer_spec: Optional[HostEmbeddingOptimizerSpec] = None,
    initializer: Any = None,
) -> HostEmbedding:
    """A new table on the host."""
    with tf.device("cpu"):
        table = tf.compat.v1.get_variable(name, shape, tf.as_dtype(dtype), initializer, use_resource=True)
    return HostEmbedding(name, table, partition_strategy, optimizer_spec)
