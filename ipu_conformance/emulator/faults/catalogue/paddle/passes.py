"""Ways for the passes, the lowered program and the dumps to be wrong."""

from __future__ import annotations

from typing import Any, List

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, popart, rule, where
from ipu_conformance.emulator.faults.decisions import paddle_ir


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
    ("paddle-decay-left-out", "weight decay is not folded", rule("decay", always(0.0))),
    ("paddle-decay-halved", "half of the weight decay is folded", rule("decay", lambda value: value / 2)),
    ("paddle-clip-norm-left-out", "the norm of clipping is not folded",
     rule("clip norm", always(None))),
    ("paddle-settings-left-out", "the optimizer's settings are folded as zeros",
     rule("settings", lambda value: {name: type(each)(0) for name, each in value.items()})),
    ("paddle-loss-is-the-first-op", "the first output of the program is taken for its loss",
     where("loss", _first_loss)),
    ("paddle-optimizer-unfolded", "the optimizer's own ops stay in the graph", where("unfolded", _all_ops)),
    ("paddle-trains-without-optimizer", "a program without an optimizer is accepted",
     rule("need an optimizer", never)),
    ("paddle-any-optimizer", "every optimizer is taken for one that is known",
     rule("unknown optimizers", lambda value: [])),
    ("paddle-nesterov-accepted", "momentum by Nesterov is folded as if it were plain", rule("refuse nesterov", never)),
    ("paddle-clip-by-value-accepted", "clipping by value is left out in silence",
     rule("refuse clipping by value", never)),
    ("paddle-clip-by-norm-accepted", "clipping by norm is left out in silence", rule("refuse clipping by norm", never)),
    ("paddle-l1-accepted", "L1 decay is folded as if it were L2", rule("refuse L1", never)),
    ("paddle-power-not-counted", "the beta1 power stays where the step count belongs",
     where("steps", lambda value, power, **context: power)),
    ("paddle-backward-kept", "the backward pass stays in the forward graph", where("kept ops", _with_backward)),
    ("paddle-scale-kept", "scales by one are not deleted", rule("deleted", never)),
    ("paddle-every-scale-deleted", "scales by other numbers are deleted too",
     where("deleted", lambda value, op, **context: value or (op.type == "scale" and op.attr("bias") == 0))),
    ("paddle-batch-of-one", "a leading -1 becomes 1", rule("micro-batch", always(1))),
    ("paddle-shapes-not-inferred", "shapes are left as they were declared", rule("infer", never)),
    ("paddle-types-not-narrowed", "64-bit types are left as they were declared",
     where("narrow", lambda value, declared, **context: declared)),
    ("paddle-wide-results-kept", "indices of 64 bits are computed with as they are", rule("cast wide results", never)),
    ("paddle-never-averaged", "need_avg_shard has no effect", rule("average", never)),
    ("paddle-always-averaged", "programs are cut though nobody asked",
     rule("average", always(True))),
    ("paddle-average-of-all-ipus", "the IPUs of all replicas share one replica's ops",
     where("IPUs per replica", lambda value, strategy, **context: int(strategy.value("num_ipus")))),
    ("paddle-average-one-later", "every run of ops begins one op later", where("runs", _one_later)),
    ("paddle-average-rest-first", "what is left over goes to the first IPU", where("runs", _rest_on_the_first)),
    ("paddle-average-without-stages", "all ops of the cut are in stage 0",
     rule("average stage", always(0))),
    ("paddle-unknown-ops-dropped", "an op without a handler is left out in silence", rule("refuse unknown ops", never)),
    ("paddle-names-not-canonical", "ops keep names without popart_",
     rule("name", lambda value: value.replace("popart_", ""))),
    ("paddle-placement-lost", "canonical ops are on no IPU", rule("place", never)),
    ("paddle-rename-missing", "an op may write what was there before under the same name", rule("rename", never)),
    ("paddle-runtime-beside-ops", "the runtime op does not replace the program", where("left over", _all_ops)),
    ("paddle-runtime-feeds-reversed", "the runtime reads its feeds in reverse order",
     rule("runtime feeds", lambda value: value[::-1])),
    ("paddle-runtime-fetches-reversed", "the runtime writes its fetches in reverse order",
     rule("runtime fetches", lambda value: value[::-1])),
    ("paddle-few-batches-accepted", "a predictor's pipeline may have fewer batches than IPUs",
     rule("refuse few batches", never)),
    ("paddle-predictor-trains", "a predictor accepts a strategy for training", rule("refuse training", never)),
    ("paddle-types-not-transferred", "enable_fp16 leaves an inference in float32", rule("transfer", never)),
    ("paddle-predictor-feeds-reversed", "a predictor's feeds come in reverse order",
     rule("predictor's feeds", lambda value: value[::-1])),
    ("paddle-dump-without-values", "the dumped model has no weights", rule("values", never)),
    ("paddle-dot-checks-ignored", "no IR is drawn", rule("dot checks", always(()))),
    ("paddle-any-dot-check", "an unknown check is drawn as another", rule("refuse unknown checks", never)),
    ("paddle-dot-of-the-forward-pass", "every check draws the forward pass",
     rule("dot step", always("forward"))),
    ("paddle-dot-of-all-ops", "first and final op of a drawing have no effect",
     rule("dot range", always((0, 10**6)))),
    ("paddle-dot-names-always", "ops are drawn with names though nobody asked", rule("nameless", never)),
):  # fmt: skip
    catalogue.register(Fault(_name, "ir", paddle_ir.point, _what, _wrong), __name__)

for _name, _place, _what, _wrong in (
    ("paddle-copies-missing", "copies:copy", "values change their IPU without a copy", always(None)),
    ("paddle-backward-stages-mirrored", "lowering:Execution.behind", "a gradient is in the stage of its forward op",
     popart.in_the_forward_stage),
    ("paddle-all-reduce-missing", "updates:updates", "gradients are not reduced over replicas",
     popart.trained_with(replicas=1)),
    ("paddle-all-reduce-of-one", "updates:updates", "gradients are reduced though there is one replica",
     popart.trained_with(replicas=2)),
    ("paddle-accumulation-missing", "updates:updates", "gradients are not accumulated",
     popart.trained_with(accumulation=1)),
    ("paddle-clip-missing", "updates:updates", "gradients are not clipped", popart.trained_with(clip_norm=None)),
):  # fmt: skip
    catalogue.register(Fault(_name, "ir", f"popart.{_place}", _what, _wrong), __name__)
