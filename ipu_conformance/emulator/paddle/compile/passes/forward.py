"""Keeping what the device's compiler reads, and deleting ops that change nothing."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from ipu_conformance.emulator.faults.decisions import paddle_ir as decide
from ipu_conformance.emulator.paddle.compile.passes.compilation import (
    FORWARD,
    LOSS,
    SCHEDULE,
    Compilation,
    keep,
    role_of,
)
from ipu_conformance.emulator.paddle.compile.passes.optimizer import TYPE
from ipu_conformance.emulator.paddle.compile.passes.widths import narrowed

_KEPT_ROLES = (FORWARD, FORWARD | LOSS, SCHEDULE)


def extract(record: Compilation, values: Mapping[str, Any]) -> None:
    """Keep the ops of the forward pass, of the loss and of the learning rate, and the folded optimizer."""
    ops = record.ops()
    kept = [op for op in ops if op.type == TYPE or role_of(op) in _KEPT_ROLES]
    keep(record.program, decide("kept ops", kept, ops=ops))


def delete_scale(record: Compilation, values: Mapping[str, Any]) -> None:
    """Delete every scale by one that adds nothing; what read its output reads its input instead."""
    record.forward = narrowed(record.snapshot())
    ops = record.ops()
    deleted: List[Any] = []
    instead: Dict[str, str] = {}
    for op in ops:
        for name in dict.fromkeys(op.input_arg_names):
            if name in instead:
                op.desc._rename_input(name, instead[name])
        written = op.output_arg_names
        if decide("deleted", changes_nothing(op.desc) and _written_once(op, ops), op=op):
            instead[written[0]] = op.input("X")[0]
            deleted.append(op)
    keep(record.program, [op for op in ops if not any(op is gone for gone in deleted)])
    record.aliases.update(instead)


def changes_nothing(op: Any) -> bool:
    """Whether the desc of an op is a scale by one that adds nothing, as saving an inference model puts behind it."""
    if op.type() != "scale" or ("ScaleTensor" in op.input_names() and op.input("ScaleTensor")):
        return False
    return bool(op.attr("scale") == 1 and op.attr("bias") == 0)


def _written_once(scale: Any, ops: List[Any]) -> bool:
    """Whether input and output of a scale keep their values: each is written by one op at most."""
    names = {scale.input("X")[0], scale.output("Out")[0]}
    return len(names) == 2 and all(sum(name in op.output_arg_names for op in ops) <= 1 for name in names)
