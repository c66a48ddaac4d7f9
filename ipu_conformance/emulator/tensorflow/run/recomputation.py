"""Builds a stage a second time for its backward pass, without what may happen once only.

The graph of a stage that is recomputed has two copies of its operations: those of the forward slot, and those of the
recompute slot, which starts from the same boundary. What changes a state is not built again: random numbers that were
drawn and values of variables that the stage changes are those of the forward slot, and such a variable is not written
a second time. Weights are read again: no update comes between the two slots of a micro-batch.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Iterator, List, Optional, Set, Tuple

from ipu_conformance.errors import ConformanceError

WRITES = ("Assign", "ResourceScatter", "ResourceStridedSliceAssign")
"""How the types of the operations begin that change variables."""
DRAWS = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal", "Stateful", "Rng")
"""How the types of the operations begin that draw random numbers."""
CALLS = ("StatefulPartitionedCall", "If", "While", "Case")
"""Operations with a state inside, which cannot be taken apart."""


class RecomputationError(ConformanceError):
    """A stage is built otherwise the second time."""


class _Building(threading.local):
    """The slot that this thread builds; replicas are threads."""

    slot: Optional[Slot] = None


_building = _Building()


class Slot:
    """The operations with a state of one forward slot, in the order in which they were built."""

    def __init__(self) -> None:
        self._made: List[Tuple[str, Any]] = []
        self._position: Optional[int] = None
        self._written: Set[str] = set()
        self.whole = False
        """Whether the stage has to be kept: a state is inside of an operation."""

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """Inside, the stage is built for the first time."""
        with self._entered():
            yield

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Inside, it is built once more."""
        self._position = 0
        with self._entered():
            yield
        if self._position != len(self._made):
            raise RecomputationError(
                f"a stage had {len(self._made)} operations with a state in its forward pass and {self._position} when "
                "it was recomputed: it must do the same whenever it is called"
            )

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        from tensorflow.python.framework import ops

        _watch(ops.get_default_graph())
        before, _building.slot = _building.slot, self
        try:
            yield
        finally:
            _building.slot = before

    def operation(self, create: Callable[..., Any], kind: str, inputs: Any, *rest: Any, **named: Any) -> Any:
        """A new operation, or when the stage is built again and it has a state that of the forward pass."""
        if not (_writes(kind) or _draws(kind) or kind == "ReadVariableOp"):
            self.whole = self.whole or kind in CALLS
            return create(kind, inputs, *rest, **named)
        if self._position is None:
            made = create(kind, inputs, *rest, **named)
            self._made.append((kind, made))
            if _writes(kind):
                self._written.add(_variable(made))
            return made
        known, made = self._made[self._position] if self._position < len(self._made) else ("nothing", None)
        if known != kind:
            raise RecomputationError(
                f"a stage built {known} in its forward pass and {kind} when it was recomputed: it must do the same "
                "whenever it is called"
            )
        self._position += 1
        if kind == "ReadVariableOp" and _variable(made) not in self._written:
            return create(kind, inputs, *rest, **named)
        return made


def _writes(kind: str) -> bool:
    return kind.startswith(WRITES)


def _draws(kind: str) -> bool:
    return kind.startswith(DRAWS) and kind not in CALLS


def _variable(operation: Any) -> str:
    """The name of the handle that an operation reads or writes."""
    return str(operation.inputs[0].name)


def _watch(graph: Any) -> None:
    """Have the slot that is being built asked for every operation of a graph, from now on."""
    create = graph._create_op_internal
    if getattr(create, "asks_slots", False):
        return

    def asking(kind: str, inputs: Any, *rest: Any, **named: Any) -> Any:
        slot = _building.slot
        if slot is None:
            return create(kind, inputs, *rest, **named)
        return slot.operation(create, kind, inputs, *rest, **named)

    asking.asks_slots = True  # type: ignore[attr-defined]
    graph._create_op_internal = asking
