"""Splits the optimizer's ops of a program by the stage that owns each weight.

What depends on the weights of several stages (the global norm) or of none (the learning rate) is computed once, before
the first stage updates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

from paddle.base import core

from ipu_conformance.emulator.paddle.compile import subprograms
from ipu_conformance.emulator.paddle.compile.compilation import OPTIMIZE, ROLE, SCHEDULE

_UPDATING = OPTIMIZE | SCHEDULE
_BEFORE = -1


@dataclass(frozen=True)
class Updates:
    """The ops of one update: those before all stages, and those of each stage."""

    before: Tuple[Any, ...]
    stages: Tuple[Tuple[Any, ...], ...]
    known: Mapping[str, Any] = field(repr=False)
    lasting: FrozenSet[str]
    """What stays on the device from step to step: weights, state, learning rates."""
    rates: Tuple[str, ...]
    """The learning rates that the host sets."""
    passed: FrozenSet[str]
    """What stages read of that which was computed before them."""
    reads_gradients: bool
    """Whether what comes before the stages reads their gradients, as the global norm does."""


NONE = Updates((), (), {}, frozenset(), (), frozenset(), False)
"""The update of a program that does not train."""


def updating(program: Any) -> List[Any]:
    """The ops of a program that belong to the optimizer, to clipping, to decay and to the schedule of the rate."""
    return [op for op in subprograms.ops_of(program) if op.has_attr(ROLE) and int(op.attr(ROLE)) & _UPDATING]


def without(program: Any) -> Any:
    """A copy of a forward program without what belongs to the update."""
    desc = core.ProgramDesc(program.desc)
    block = desc.block(0)
    for index in reversed(range(block.op_size())):
        op = block.op(index)
        if op.has_attr(ROLE) and int(op.attr(ROLE)) & _UPDATING:
            block._remove_op(index, index + 1)
    return subprograms.Described(desc)


def split(
    program: Any, owner: Mapping[str, int], gradients: Mapping[str, str], states: Mapping[str, str], stages: int
) -> Updates:
    """Split the update of a program, where ``owner`` is the stage of each weight.

    ``gradients`` names the gradient of each weight and ``states`` the weight of each state variable.
    """
    ops = updating(program)
    known = subprograms.variables(program)
    home: Dict[str, int] = dict(owner)
    home.update({gradient: owner[weight] for weight, gradient in gradients.items() if weight in owner})
    home.update({state: owner[weight] for state, weight in states.items() if weight in owner})
    where: List[int] = []
    for op in ops:
        homes = {home[name] for name in subprograms.reads(op) if name in home}
        # A weight that the loss does not depend on is not trained, and neither is what belongs to it.
        stage = homes.pop() if len(homes) == 1 else _BEFORE
        where.append(stage)
        for name in subprograms.writes(op):
            if stage == _BEFORE:
                home.pop(name, None)
            else:
                home[name] = stage
    written = {name for op in ops for name in subprograms.writes(op)}
    persistent = frozenset(
        name for name in subprograms.touched(ops) if known[name].persistable() and name not in gradients.values()
    )
    if stages == 1:
        before: Tuple[Any, ...] = ()
        split_ops: Tuple[Tuple[Any, ...], ...] = (tuple(ops),)
    else:
        before = tuple(_needed(ops, [index for index, stage in enumerate(where) if stage == _BEFORE]))
        split_ops = tuple(
            tuple(_effective([op for op, stage in zip(ops, where) if stage == number], persistent))
            for number in range(stages)
        )
    written_before = {
        name for index, op in enumerate(ops) if where[index] == _BEFORE for name in subprograms.writes(op)
    }
    passed = frozenset(name for group in split_ops for name in _read_first(group) if name in written_before)
    not_rates = {*owner, *states, *gradients.values(), *written}
    rates = {name for name in _read_first(ops) if name in persistent and name not in not_rates}
    return Updates(
        before=before if stages > 1 else (),
        stages=split_ops,
        known=known,
        lasting=persistent,
        rates=tuple(sorted(rates)),
        passed=passed if stages > 1 else frozenset(),
        reads_gradients=stages > 1 and bool(subprograms.touched(before) & set(gradients.values())),
    )


def _needed(ops: Sequence[Any], wanted: Sequence[int]) -> List[Any]:
    """The wanted ops and those before them whose results they read."""
    kept: Set[int] = set()
    read: Set[str] = set()
    for index in reversed(range(len(ops))):
        if index in wanted or read & set(subprograms.writes(ops[index])):
            kept.add(index)
            read -= set(subprograms.writes(ops[index]))
            read |= set(subprograms.reads(ops[index]))
    return [op for index, op in enumerate(ops) if index in kept]


def _effective(ops: Sequence[Any], lasting: FrozenSet[str]) -> List[Any]:
    """The ops that something lasting depends on."""
    return _needed(ops, [index for index, op in enumerate(ops) if lasting & set(subprograms.writes(op))])


def _read_first(ops: Sequence[Any]) -> Set[str]:
    """What ops read before they write it."""
    written: Set[str] = set()
    first: Set[str] = set()
    for op in ops:
        first |= {name for name in subprograms.reads(op) if name not in written}
        written |= set(subprograms.writes(op))
    return first
