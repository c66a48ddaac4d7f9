"""Cuts a forward program into stages and gives each the ops of its own backward pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import paddle
from paddle.base import core

from ipu_conformance.emulator.paddle.compile import subprograms

INCOMING = "@INCOMING"
"""What the name of a gradient ends with that a later stage sends back."""
_CUT = "@CUT"
_FLOATS = (
    core.VarDesc.VarType.FP16,
    core.VarDesc.VarType.BF16,
    core.VarDesc.VarType.FP32,
    core.VarDesc.VarType.FP64,
)


@dataclass(frozen=True)
class Stage:
    """One stage: ops, and the names of the variables that enter and leave them."""

    number: int
    forward: Tuple[Any, ...]
    backward: Tuple[Any, ...]
    known: Mapping[str, Any] = field(repr=False)
    """The descriptions of the variables of both."""
    feeds: Tuple[str, ...]
    fetches: Tuple[str, ...]
    received: Tuple[str, ...]
    handed: Tuple[str, ...]
    stash: Tuple[str, ...]
    """What backward reads that a later micro-batch would overwrite."""
    shapes: Tuple[str, ...]
    """What backward reads for its shape alone, which has no memory and is the same for all micro-batches."""
    lasting: Tuple[str, ...]
    """The variables of the replica that the stage reads: weights, statistics."""
    moving: Tuple[str, ...]
    """Those of them that forward changes: statistics."""
    gradients: Mapping[str, str]
    """For each weight the variable in which backward leaves its gradient."""
    incoming: Mapping[str, str]
    """For each value that is handed on, the variable that backward reads its gradient from."""
    outgoing: Mapping[str, str]
    """For each value that was received, the variable in which backward leaves its gradient."""
    held: Any = field(default=None, repr=False)
    """The program that owns the backward ops."""


@dataclass(frozen=True)
class _Border:
    """What crosses into and out of one stage."""

    received: Tuple[str, ...]
    handed: Tuple[str, ...]


def cut(
    program: Any,
    stage_of: Sequence[int],
    stages: int,
    *,
    feeds: Sequence[str],
    fetches: Sequence[str],
    loss: Optional[str] = None,
    trainable: Sequence[str] = (),
    loss_scale: float = 1.0,
) -> List[Stage]:
    """The stages of a forward program, whose backward ops begin at ``loss`` where there is one."""
    ops = subprograms.ops_of(program)
    known = subprograms.variables(program)
    borders = _borders(ops, stage_of, stages, known, feeds)
    result: List[Stage] = []
    incoming: Mapping[str, str] = {}
    for number in reversed(range(stages)):
        stage_ops = [op for op, stage in zip(ops, stage_of) if stage == number]
        stage = _stage(number, stage_ops, known, borders[number], feeds, fetches, loss, trainable, loss_scale, incoming)
        # What this stage sends back is what the one before it gets.
        incoming = {name: name + INCOMING for name in stage.outgoing}
        result.append(stage)
    return result[::-1]


def _borders(
    ops: Sequence[Any], stage_of: Sequence[int], stages: int, known: Mapping[str, Any], feeds: Sequence[str]
) -> List[_Border]:
    """The values that are alive at each border, in the order in which ops make them."""
    made_in: Dict[str, int] = {}
    last_use: Dict[str, int] = {}
    for op, stage in zip(ops, stage_of):
        for name in subprograms.reads(op):
            if name in made_in:
                last_use[name] = max(last_use.get(name, 0), stage)
        for name in subprograms.writes(op):
            if not known[name].persistable() and name not in feeds:
                made_in.setdefault(name, stage)
    alive = [
        tuple(name for name, stage in made_in.items() if stage < number <= last_use.get(name, -1))
        for number in range(stages + 1)
    ]
    return [_Border(alive[number], alive[number + 1]) for number in range(stages)]


def _stage(
    number: int,
    ops: Sequence[Any],
    known: Mapping[str, Any],
    border: _Border,
    feeds: Sequence[str],
    fetches: Sequence[str],
    loss: Optional[str],
    trainable: Sequence[str],
    loss_scale: float,
    incoming: Mapping[str, str],
) -> Stage:
    touched = subprograms.touched(ops)
    written = {name for op in ops for name in subprograms.writes(op)}
    lasting = tuple(name for name in known if name in touched and known[name].persistable())
    # A fetched feed or weight is written by no op; the first stage gives it back.
    loose = set(fetches) - _made_anywhere(known, feeds) if number == 0 else set()
    backward: Tuple[Any, ...] = ()
    gradients: Dict[str, str] = {}
    outgoing: Dict[str, str] = {}
    described = dict(known)
    held = None
    if loss is not None:
        derived = _differentiate(ops, known, border, written, loss, trainable, loss_scale, incoming)
        backward, gradients, outgoing = derived.ops, derived.gradients, derived.outgoing
        described.update(derived.known)
        held = derived.program
    arriving = set(incoming.values())
    shapes = {name for op in ops if "XShape" in op.output_names() for name in op.output("XShape")}
    made_backward: Set[str] = set()
    stash: List[str] = []
    for op in backward:
        for name in subprograms.reads(op):
            if name not in made_backward and name not in lasting and name not in arriving:
                stash.append(name)
        made_backward.update(subprograms.writes(op))
    return Stage(
        number=number,
        forward=tuple(ops),
        backward=backward,
        known=described,
        feeds=tuple(name for name in feeds if name in touched or name in loose),
        fetches=tuple(name for name in fetches if name in written or name in loose),
        received=border.received,
        handed=border.handed,
        stash=tuple(name for name in dict.fromkeys(stash) if name not in shapes),
        shapes=tuple(name for name in dict.fromkeys(stash) if name in shapes),
        lasting=lasting,
        moving=tuple(name for name in lasting if name in written),
        gradients=gradients,
        incoming={name: gradient for name, gradient in incoming.items() if name in border.handed},
        outgoing=outgoing,
        held=held,
    )


def _made_anywhere(known: Mapping[str, Any], feeds: Sequence[str]) -> Set[str]:
    return {name for name, desc in known.items() if not desc.persistable() and name not in feeds}


@dataclass(frozen=True)
class _Derived:
    """The backward ops of one stage, which live as long as their program."""

    ops: Tuple[Any, ...]
    known: Mapping[str, Any]
    program: Any
    gradients: Dict[str, str]
    outgoing: Dict[str, str]


def _differentiate(
    stage_ops: Sequence[Any],
    known: Mapping[str, Any],
    border: _Border,
    written: Set[str],
    loss: str,
    trainable: Sequence[str],
    loss_scale: float,
    incoming: Mapping[str, str],
) -> _Derived:
    """The gradients, derived by Paddle, of what leaves a stage by its weights and by what it received."""
    lasting = [name for name in known if known[name].persistable()]
    program = subprograms.assemble(stage_ops, known, lasting).program()
    block = program.global_block()
    touched = subprograms.touched(stage_ops)
    wanted = [name for name in trainable if name in touched]
    # What a stage only passes on, Paddle derives nothing for: its gradient goes back as it came.
    passed = [name for name in border.received if name not in touched and name in border.handed and name in incoming]
    wanted += [name for name in border.received if name in touched and known[name].dtype() in _FLOATS]
    targets: List[Any] = []
    seeds: List[Any] = []
    begin = len(block.ops)
    with paddle.static.program_guard(program, paddle.static.Program()):
        for name in wanted:
            block.var(name).stop_gradient = False
        # A later stage's gradient joins those of this stage in Paddle's own order, so that a cut changes no bit.
        handed = [name for name in border.handed if name in incoming and name not in passed]
        alone = not handed and loss_scale == 1.0
        if loss in written:
            targets.append(block.var(loss) if alone else _separate(block, loss))
            seeds.append(
                None
                if alone
                else paddle.full(list(known[loss].shape()), loss_scale, subprograms.TensorSpec.of(known[loss]).dtype)
            )
        for name in handed:
            targets.append(_separate(block, name))
            seeds.append(block.create_var(name=incoming[name], shape=known[name].shape(), dtype=known[name].dtype()))
        derived = paddle.static.gradients(targets, [block.var(name) for name in wanted], seeds) if targets else []
        of = {name: gradient.name for name, gradient in zip(wanted, derived) if gradient is not None}
    program.desc.flush()
    ops = [op for op in subprograms.ops_of(program)[begin:] if not _separates(op)]
    return _Derived(
        ops=tuple(ops),
        known=subprograms.variables(program),
        program=program,
        gradients={name: of[name] for name in wanted if name in trainable and name in of},
        outgoing={
            name: incoming[name] if name in passed else of[name]
            for name in border.received
            if name in passed or name in of
        },
    )


def _separate(block: Any, name: str) -> Any:
    """A separate target for a value that the stage uses itself: Paddle would overwrite one gradient by the other."""
    variable = block.var(name)
    separate = block.create_var(name=name + _CUT, shape=variable.shape, dtype=variable.dtype, stop_gradient=False)
    block.append_op(type="assign", inputs={"X": variable}, outputs={"Out": separate})
    return separate


def _separates(op: Any) -> bool:
    return op.type() == "assign" and op.output("Out")[0].endswith(_CUT)
