"""Ways for the passes, the lowered program and the dumps to be wrong."""

from __future__ import annotations

from typing import Any, Callable, List

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault
from ipu_conformance.emulator.faults.decisions import paddle_ir

POINT = paddle_ir.point


def _where(name: str, wrong: Callable[..., Any]) -> Callable[..., Any]:
    """The wrong value at one rule, and the right one at all others."""
    return lambda value, rule, **context: wrong(value, **context) if rule == name else value


def _never(name: str) -> Callable[..., Any]:
    return _where(name, lambda value, **context: False)


def _all_ops(value: List[Any], ops: List[Any], **context: Any) -> List[Any]:
    return ops


def _with_backward(value: List[Any], ops: List[Any], **context: Any) -> List[Any]:
    return [op for op in ops if op.type != "popart_optimizer" or op in value]


def _one_later(value: List[int], ipus: int, **context: Any) -> List[int]:
    return [0, *value[:-1]] if value else value


def _rest_on_the_first(value: List[int], ipus: int, **context: Any) -> List[int]:
    length = max(len(value) // ipus, 1)
    return [place // length if place // length < ipus else 0 for place in range(len(value))]


def _first_loss(value: str, ops: List[Any], **context: Any) -> str:
    return str(ops[0].output_arg_names[0])


for _name, _what, _wrong in (
    ("paddle-decay-left-out", "weight decay is not folded", _where("decay", lambda value, **context: 0.0)),
    ("paddle-decay-halved", "half of the weight decay is folded", _where("decay", lambda value, **context: value / 2)),
    ("paddle-clip-norm-left-out", "the norm of clipping is not folded",
     _where("clip norm", lambda value, **context: None)),
    ("paddle-settings-left-out", "the optimizer's settings are folded as zeros",
     _where("settings", lambda value, **context: {name: type(each)(0) for name, each in value.items()})),
    ("paddle-loss-is-the-first-op", "the first output of the program is taken for its loss",
     _where("loss", _first_loss)),
    ("paddle-optimizer-unfolded", "the optimizer's own ops stay in the graph", _where("unfolded", _all_ops)),
    ("paddle-trains-without-optimizer", "a program without an optimizer is no error",
     _where("need an optimizer", lambda value, **context: False)),
    ("paddle-any-optimizer", "every optimizer is taken for one that is known",
     _where("unknown optimizers", lambda value, **context: [])),
    ("paddle-nesterov-accepted", "momentum by Nesterov is folded as if it were plain", _never("refuse nesterov")),
    ("paddle-clip-by-value-accepted", "clipping by value is left out in silence", _never("refuse clipping by value")),
    ("paddle-clip-by-norm-accepted", "clipping by norm is left out in silence", _never("refuse clipping by norm")),
    ("paddle-l1-accepted", "L1 decay is folded as if it were L2", _never("refuse L1")),
    ("paddle-power-not-counted", "the beta1 power stays where the step count belongs",
     _where("steps", lambda value, power, **context: power)),
    ("paddle-backward-kept", "the backward pass stays in the forward graph", _where("kept ops", _with_backward)),
    ("paddle-scale-kept", "scales by one are not deleted", _never("deleted")),
    ("paddle-every-scale-deleted", "scales by other numbers are deleted too",
     _where("deleted", lambda value, op, **context: value or (op.type == "scale" and op.attr("bias") == 0))),
    ("paddle-batch-of-one", "a leading -1 becomes 1", _where("micro-batch", lambda value, **context: 1)),
    ("paddle-shapes-not-inferred", "shapes are left as they were declared", _never("infer")),
    ("paddle-types-not-narrowed", "64-bit types are left as they were declared",
     _where("narrow", lambda value, declared, **context: declared)),
    ("paddle-wide-results-kept", "indices of 64 bits are computed with as they are", _never("cast wide results")),
    ("paddle-never-averaged", "need_avg_shard has no effect", _never("average")),
    ("paddle-always-averaged", "programs are cut though nobody asked",
     _where("average", lambda value, **context: True)),
    ("paddle-average-of-all-ipus", "the IPUs of all replicas share one replica's ops",
     _where("IPUs per replica", lambda value, strategy, **context: int(strategy.value("num_ipus")))),
    ("paddle-average-one-later", "every run of ops begins one op later", _where("runs", _one_later)),
    ("paddle-average-rest-first", "what is left over goes to the first IPU", _where("runs", _rest_on_the_first)),
    ("paddle-average-without-stages", "all ops of the cut are in stage 0",
     _where("average stage", lambda value, **context: 0)),
    ("paddle-unknown-ops-dropped", "an op without a handler is left out in silence", _never("refuse unknown ops")),
    ("paddle-names-not-canonical", "ops keep names without popart_",
     _where("name", lambda value, **context: value.replace("popart_", ""))),
    ("paddle-placement-lost", "canonical ops are on no IPU", _never("place")),
    ("paddle-rename-missing", "an op may write what was there before under the same name", _never("rename")),
    ("paddle-runtime-beside-ops", "the runtime op does not replace the program", _where("left over", _all_ops)),
    ("paddle-runtime-feeds-reversed", "the runtime reads its feeds in reverse order",
     _where("runtime feeds", lambda value, **context: value[::-1])),
    ("paddle-runtime-fetches-reversed", "the runtime writes its fetches in reverse order",
     _where("runtime fetches", lambda value, **context: value[::-1])),
    ("paddle-few-batches-accepted", "a predictor's pipeline may have fewer batches than IPUs",
     _never("refuse few batches")),
    ("paddle-predictor-trains", "a predictor accepts a strategy for training", _never("refuse training")),
    ("paddle-types-not-transferred", "enable_fp16 leaves an inference in float32", _never("transfer")),
    ("paddle-predictor-feeds-reversed", "a predictor's feeds come in reverse order",
     _where("predictor's feeds", lambda value, **context: value[::-1])),
    ("paddle-copies-missing", "values change their IPU without a copy", _never("copies")),
    ("paddle-backward-stages-mirrored", "a gradient is in the stage of its forward op",
     _where("backward stage", lambda value, forward, **context: forward)),
    ("paddle-all-reduce-missing", "gradients are not reduced over replicas", _never("all-reduce")),
    ("paddle-all-reduce-of-one", "gradients are reduced though there is one replica",
     _where("all-reduce", lambda value, **context: True)),
    ("paddle-accumulation-missing", "gradients are not accumulated", _never("accumulate")),
    ("paddle-clip-missing", "gradients are not clipped", _never("clip")),
    ("paddle-dump-without-values", "the dumped model has no weights", _never("values")),
    ("paddle-dot-checks-ignored", "no IR is drawn", _where("dot checks", lambda value, **context: ())),
    ("paddle-any-dot-check", "an unknown check is drawn as another", _never("refuse unknown checks")),
    ("paddle-dot-of-the-forward-pass", "every check draws the forward pass",
     _where("dot step", lambda value, **context: "forward")),
    ("paddle-dot-of-all-ops", "first and final op of a drawing have no effect",
     _where("dot range", lambda value, **context: (0, 10**6))),
    ("paddle-dot-names-always", "ops are drawn with names though nobody asked", _never("nameless")),
):  # fmt: skip
    faults.register(Fault(_name, "ir", POINT, _what, _wrong))
