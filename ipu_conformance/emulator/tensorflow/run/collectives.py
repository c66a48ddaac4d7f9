"""What replicas do together, with gradients: sums and means over groups, gathering, scattering, agreeing."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

from ipu_conformance.emulator.tensorflow.compile.shards import placing
from ipu_conformance.emulator.tensorflow.refusals import ops as refusals
from ipu_conformance.emulator.tensorflow.run import replicas
from ipu_conformance.emulator.tensorflow.run.replicas import ReplicaError

SUM, MEAN, MAX, MIN, PRODUCT = "sum", "mean", "max", "min", "product"
USED = "ipu_collectives"
"""The collection of a graph with the names of the collectives in it."""


def used() -> Sequence[str]:
    """The collectives that the program which is being built has so far."""
    return list(_program().get_collection(USED))


def require_replicas(number: int) -> None:
    """The number of replicas that a program is written for is the number that it runs on."""
    if not placing():
        refusals.OTHER_REPLICAS(number=number, replicas=replicas.count())


def cross_replica_sum(x: Any, replica_group_size: Optional[int] = None, name: Optional[str] = None) -> Any:
    """The sum over all replicas, or over each group of consecutive ones."""
    return _reduced(x, SUM, replica_group_size, "cross_replica_sum")


def cross_replica_mean(x: Any, replica_group_size: Optional[int] = None, name: Optional[str] = None) -> Any:
    """The mean over all replicas, or over each group of consecutive ones."""
    return _reduced(x, MEAN, replica_group_size, "cross_replica_mean")


def _reduced(x: Any, reduction: str, group: Optional[int], name: str) -> Any:
    if group is not None and (isinstance(group, bool) or not isinstance(group, int) or group < 1):
        raise ValueError(f"`replica_group_size` is {group!r}; use a whole number of replicas from 1 on, or None.")
    if placing():
        import tensorflow as tf

        return tf.identity(x)
    return all_reduce(_tensor(x), reduction, group, name)


def all_reduce(value: Any, reduction: str = SUM, group: Optional[int] = None, name: str = "all_reduce") -> Any:
    """Every replica's sum (or mean, …) over the ``group`` consecutive replicas that it belongs to; None means all.

    The gradient is reduced in the same way.
    """

    def meet(own: Any) -> Any:
        return _exchange(own, lambda all_: _by_group(all_, group, _REDUCTIONS[reduction]), f"{name} ({reduction})")

    return _differentiable(meet, meet, value) if reduction in (SUM, MEAN) else meet(_tensor(value))


def all_gather(value: Any, group: Optional[int] = None, name: str = "all_gather") -> Any:
    """The values of the group's replicas under one new leading axis; the gradient is the sum of what each got."""

    def forward(own: Any) -> Any:
        return _exchange(own, lambda all_: _by_group(all_, group, _stacked), name)

    def backward(gradient: Any) -> Any:
        def combine(all_: List[Any]) -> Sequence[Any]:
            return _by_group(all_, group, lambda members: _unstacked(_added(members), len(members)))

        return _exchange(gradient, combine, f"gradient of {name}")

    return _differentiable(forward, backward, value)


def reduce_scatter(value: Any, reduction: str = SUM, group: Optional[int] = None, name: str = "reduce_scatter") -> Any:
    """The reduced vector cut into equal pieces, one for each replica of the group, with zeros to fill the last.

    The value is taken as a vector of all its elements.
    """
    import tensorflow as tf

    def combine(all_: List[Any]) -> Sequence[Any]:
        def members(some: List[Any]) -> Sequence[Any]:
            total = tf.reshape(_REDUCTIONS[reduction](some)[0], [-1])
            length = -(-int(total.shape[0]) // len(some))
            padded = tf.pad(total, [[0, length * len(some) - int(total.shape[0])]])
            return tf.split(padded, len(some))

        return _by_group(all_, group, members)

    return _exchange(_tensor(value), combine, f"{name} ({reduction})")


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """The tensors themselves, which are promised to be the same on every replica: each goes on with its own."""
    import tensorflow as tf

    return tf.nest.map_structure(tf.identity, tensors)


def all_to_all(value: Any, name: str = "all_to_all") -> Any:
    """Row ``s`` of replica ``r`` becomes row ``r`` of replica ``s``; the gradient goes back the same way."""
    import tensorflow as tf

    def meet(own: Any) -> Any:
        def combine(all_: List[Any]) -> Sequence[Any]:
            rows = [_unstacked(one, len(all_)) for one in all_]
            return [tf.stack([rows[sender][receiver] for sender in range(len(all_))]) for receiver in range(len(all_))]

        return _exchange(own, combine, name)

    return _differentiable(meet, meet, value)


def _exchange(value: Any, combine: Callable[[List[Any]], Sequence[Any]], name: str) -> Any:
    known = _program().get_collection_ref(USED)
    if name not in known:
        known.append(name)
    return replicas.exchange(value, combine, name)


def _program() -> Any:
    """The outermost graph that is being built."""
    from tensorflow.python.framework import ops

    graph = ops.get_default_graph()
    while getattr(graph, "outer_graph", None) is not None:
        graph = graph.outer_graph
    return graph


def _tensor(value: Any) -> Any:
    import tensorflow as tf

    return tf.convert_to_tensor(value)


def _differentiable(forward: Callable[[Any], Any], backward: Callable[[Any], Any], value: Any) -> Any:
    """``forward(value)`` whose gradient is ``backward``; each replica's tape sees only what its own thread does."""
    import tensorflow as tf

    @tf.custom_gradient
    def met(own: Any) -> Any:
        return tf.identity(forward(own)), backward

    return met(_tensor(value))


def _by_group(values: List[Any], group: Optional[int], reduce: Callable[[List[Any]], Sequence[Any]]) -> List[Any]:
    """``reduce`` of each run of ``group`` consecutive replicas, one after the other."""
    size = group or len(values)
    if size < 1 or len(values) % size:
        raise ReplicaError(
            f"groups of {size} replicas were given for {len(values)} replicas: use a divisor of them, or None for all"
        )
    return [answer for start in range(0, len(values), size) for answer in reduce(list(values[start : start + size]))]


def _added(members: Sequence[Any]) -> Any:
    import tensorflow as tf

    return members[0] if len(members) == 1 else tf.add_n(list(members))


def _folded(members: Sequence[Any], function: Callable[[Any, Any], Any]) -> Any:
    value = members[0]
    for member in members[1:]:
        value = function(value, member)
    return value


def _unstacked(value: Any, number: int) -> List[Any]:
    import tensorflow as tf

    return list(tf.unstack(value, num=number))


def _stacked(members: List[Any]) -> Sequence[Any]:
    import tensorflow as tf

    return [tf.stack(members)] * len(members)


def _same_for_all(reduce: Callable[[List[Any]], Any]) -> Callable[[List[Any]], Sequence[Any]]:
    return lambda members: [reduce(members)] * len(members)


def _mean(members: List[Any]) -> Any:
    import tensorflow as tf

    return _added(members) / tf.cast(len(members), members[0].dtype)


def _with(name: str) -> Callable[[List[Any]], Any]:
    def reduce(members: List[Any]) -> Any:
        import tensorflow as tf

        return _folded(members, getattr(tf, name))

    return reduce


_REDUCTIONS = {
    SUM: _same_for_all(_added),
    MEAN: _same_for_all(_mean),
    MAX: _same_for_all(_with("maximum")),
    MIN: _same_for_all(_with("minimum")),
    PRODUCT: _same_for_all(_with("multiply")),
}
