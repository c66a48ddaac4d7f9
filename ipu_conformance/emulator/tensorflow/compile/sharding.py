"""Which IPU of a replica an operation of a graph belongs to, and spreading a graph over the IPUs of a replica."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence

from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework import ops

from ipu_conformance.emulator.tensorflow.compile import shards

ATTRIBUTE = "_XlaSharding"
SINGLE, SEVERAL = b"\x01", b"\x02"


def encoded(ipus: Sequence[int]) -> Any:
    """The attribute of an operation that belongs to these IPUs: one, or several."""
    return attr_value_pb2.AttrValue(s=(SINGLE if len(ipus) == 1 else SEVERAL) + bytes(ipus))


def of(op: Any) -> List[int]:
    """The IPUs that an operation belongs to; none if it is not placed."""
    if not has_attr(op, ATTRIBUTE):
        return []
    return list(op.get_attr(ATTRIBUTE)[1:])


def put(op: Any, ipus: Sequence[int]) -> None:
    """Place an operation."""
    op._set_attr(ATTRIBUTE, encoded(ipus))


def get_sharding(op: Any) -> Any:
    """What an operation is placed with, as its attribute holds it; None if it is not placed."""
    return op.get_attr(ATTRIBUTE) if has_attr(op, ATTRIBUTE) else None


def has_attr(o: Any, attr_name: str) -> bool:
    """Whether an operation has an attribute."""
    return attr_name in o.node_def.attr


def get_shard_from_colocation(op: Any) -> Optional[int]:
    """The IPU of an operation, or of one that it is colocated with; None if neither is placed."""
    for found in (op, *(op.graph.get_operation_by_name(name) for name in _colocated(op))):
        own = of(found)
        if own:
            return own[0]
    return None


def _colocated(op: Any) -> List[str]:
    prefix = b"loc:@"
    return [name[len(prefix) :].decode() for name in op.colocation_groups() if name[len(prefix) :].decode() != op.name]


def dependencies(roots: Iterable[Any]) -> List[Any]:
    """All operations that those of the given tensors or operations need, themselves included."""
    waiting, seen = [getattr(root, "op", root) for root in roots], {}
    while waiting:
        op = waiting.pop()
        if id(op) not in seen:
            seen[id(op)] = op
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return list(seen.values())


def propagate_sharding(g: Any) -> None:
    """Place every operation that is not placed where one that it reads from is placed."""
    changed = True
    while changed:
        changed = False
        for op in g.get_operations():
            if not of(op):
                found = next((of(tensor.op) for tensor in op.inputs if of(tensor.op)), [])
                if found:
                    put(op, found)
                    changed = True


MARK = "_IpuAutoshard"


def automatic_sharding(
    num_shards: int,
    input_ts: Any,
    loss_ts: Any,
    edge_filter: Optional[Callable[[Any], bool]] = None,
    frozen_inference: bool = False,
) -> None:
    """Place all that lies between an input and a loss on IPUs 0 to ``num_shards`` - 1, in the order of the graph."""
    if num_shards < 1:
        raise ValueError(f"`num_shards` is {num_shards}; use 1 or more.")
    needed = {id(op) for op in dependencies([loss_ts])}
    between = [op for op in input_ts.graph.get_operations() if id(op) in needed and _after(op, input_ts)]
    if not between:
        raise ValueError(f"{loss_ts.name} does not depend on {input_ts.name}: there is nothing to shard.")
    for position, op in enumerate(between):
        ipu = position * num_shards // len(between)
        put(op, [ipu])
        shards.note(ipu)


def _after(op: Any, source: Any) -> bool:
    return any(found is source.op for found in dependencies([op]))


@contextlib.contextmanager
def ipu_autoshard() -> Iterator[None]:
    """What is made inside may be sharded."""
    with ops.get_default_graph()._attr_scope({MARK: attr_value_pb2.AttrValue(b=True)}):
        yield
