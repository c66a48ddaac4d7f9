"""Ways for the passes, the lowered program and the dumps to be wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, List

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, never, popart, register, result
from ipu_conformance.emulator.faults.catalogue.paddle import VALUE, told

FOLDING = "paddle.optim.folding"
FORWARD = "paddle.compile.passes.forward"
INFERENCE = "paddle.compile.passes.inference"
POPART = "paddle.compile.passes.popart"
Original = Callable[..., Any]


def _of_zeros(value: Any, **context: Any) -> Any:
    """The graph with zeros in place of the weights that it carries."""
    blank = {name: data and bytes(len(data)) for name, data in value.initializers.items()}
    return replace(value, initializers=blank)


def _first_op_late(value: Any, **context: Any) -> Any:
    """The graph with its first op one stage behind, where those that read it do not wait."""
    first, *ops = value.ops
    return replace(value, ops=(replace(first, stage=(first.stage or 0) + 1), *ops))


def _zeros(settings: Any) -> Any:
    return {name: type(value)(0) for name, value in settings.items()}


def _one_later(indices: List[int]) -> List[int]:
    return [0, *indices[:-1]] if indices else indices


def _rest_on_the_first(original: Original, ops: int, ipus: int) -> List[int]:
    length = max(ops // ipus, 1)
    return [place // length if place // length < ipus else 0 for place in range(ops)]


def _in_stage_zero(original: Original, ops: List[Any], ipus: int) -> None:
    original(ops, ipus)
    for op in ops:
        op.desc._set_attr("ipu_stage", 0)


def _upper_half(original: Original, block: Any, index: int, op: Any) -> None:
    """Small numbers have zeros there."""
    before = block.op_size()
    original(block, index, op)
    if block.op_size() > before:
        cast = block.op(index + 1)
        cast.set_type("fill_any_like")
        cast._set_attr("value", 0.0)
        cast._set_attr("dtype", cast.attr("out_dtype"))


def _turned(original: Original, written: Any, block: Any, op: Any) -> None:
    original(written, block, op)
    if op.has_attr("out_h") and op.has_attr("scale"):
        height, width, factors = op.attr("out_h"), op.attr("out_w"), op.attr("scale")
        op.desc._set_attr("out_h", width)
        op.desc._set_attr("out_w", height)
        op.desc._set_attr("scale", list(factors)[::-1])


def _forgotten(original: Original, written: Any, block: Any, op: Any) -> None:
    before = {name: op.attr(name) for name in ("axis", "k") if op.has_attr(name)}
    original(written, block, op)
    for name, value in before.items():
        op.desc._set_attr(name, value)


def _expands_by_tensors(original: Original, call: Any, writer: Any) -> None:
    if call.type != "expand_v2" or not call.inputs.get("Shape"):
        original(call, writer)


def _every_scale(original: Original, op: Any) -> bool:
    return original(op) or bool(op.type() == "scale" and op.attr("bias") == 0)


def _without_updates(original: Original, record: Any, folded: Any, loss: str) -> None:
    from ipu_conformance.emulator.paddle.compile.compilation import OPTIMIZE, OPTIMIZER, keep, role_of

    original(record, folded, loss)
    keep(record.program, [op for op in record.ops() if op.type == OPTIMIZER or not role_of(op) & OPTIMIZE])


def _decay_of_adamw(original: Original, update: Any, attribute: Any) -> float:
    return float(update.attr("coeff")) if update.type == "adamw" else original(update, attribute)


def _of_two_nodes(original: Original, graph: Any, program: Any) -> None:
    original(graph, program)
    for variable in program.desc.block(0).all_vars():
        graph.create_var_node(variable)


for _name, _place, _what, _wrong in (
    ("paddle-decay-left-out", f"{FOLDING}:_decay", "weight decay is not folded", always(0.0)),
    ("paddle-decay-halved", f"{FOLDING}:_decay", "half of the weight decay is folded",
     result(lambda decay: decay / 2)),
    ("paddle-clip-norm-left-out", f"{FOLDING}:_clip_norm", "the norm of clipping is not folded", always(None)),
    ("paddle-settings-left-out", f"{FOLDING}:_settings", "the optimizer's settings are folded as zeros",
     result(_zeros)),
    ("paddle-loss-is-the-first-op", f"{FOLDING}:find_loss", "the first output of the program is taken for its loss",
     lambda original, ops, **words: str(ops[0].output_arg_names[0])),
    ("paddle-mark-of-the-loss-ignored", f"{FOLDING}:find_loss", "gradients begin at what is minimized, marked or not",
     lambda original, ops, **words: original([op for op in ops if op.type != "identity_loss"], **words)),
    ("paddle-loss-before-its-reduction", f"{FOLDING}:_final_losses", "the reduction behind a loss does not count",
     lambda original, ops: original([op for op in ops if not op.type.startswith("reduce_")])),
    ("paddle-optimizer-removed-early", f"{FOLDING}:_append", "the optimizer's own ops are gone once they are folded",
     _without_updates),
    ("paddle-adamw-decays", f"{FOLDING}:_decay", "the decay of AdamW is folded", _decay_of_adamw),
    ("paddle-power-not-counted", f"{FOLDING}:steps", "the beta1 power stays where the step count belongs",
     lambda original, power, beta1: power),
    ("paddle-backward-kept", f"{FORWARD}:forward_ops", "the backward pass stays in the forward graph",
     lambda original, ops: ops),
    ("paddle-argmax-keeps-its-dimension", "paddle.compile.passes.shapes:_drop_kept_dimension",
     "argmax and argmin keep a dimension", never),
    ("paddle-scale-kept", f"{FORWARD}:_written_once", "scales by one are not deleted", never),
    ("paddle-every-scale-deleted", f"{FORWARD}:changes_nothing", "scales by other numbers are deleted too",
     _every_scale),
    ("paddle-batch-of-one", VALUE, "a leading -1 becomes 1", told(micro_batch_size=1)),
    ("paddle-shapes-not-inferred", "paddle.compile.passes.shapes:_infer_outputs",
     "shapes are left as they were declared", always(None)),
    ("paddle-types-not-narrowed", "paddle.compile.passes.shapes:_narrow",
     "64-bit types are left as they were declared", always(None)),
    ("paddle-upper-half-read", "paddle.compile.passes.widths:_cast_after",
     "of indices of 64 bits the upper half is read", _upper_half),
    ("paddle-sizes-of-tensors-swapped", "paddle.compile.passes.tensor_attributes:WrittenAttributes.fold",
     "pictures whose size is a tensor have their height for their width", _turned),
    ("paddle-axes-of-tensors-forgotten", "paddle.compile.passes.tensor_attributes:WrittenAttributes.fold",
     "an attribute that is a tensor counts for the number beside it", _forgotten),
    ("paddle-never-averaged", VALUE, "need_avg_shard has no effect", told(need_avg_shard=False)),
    ("paddle-always-averaged", VALUE, "programs are cut though nobody asked", told(need_avg_shard=True)),
    ("paddle-average-of-all-ipus", f"{FORWARD}:ipus_per_replica", "the IPUs of all replicas share one replica's ops",
     lambda original, strategy: int(strategy.value("num_ipus"))),
    ("paddle-average-one-later", f"{FORWARD}:runs", "every run of ops begins one op later", result(_one_later)),
    ("paddle-average-rest-first", f"{FORWARD}:runs", "what is left over goes to the first IPU", _rest_on_the_first),
    ("paddle-average-without-stages", f"{FORWARD}:cut", "all ops of the cut are in stage 0", _in_stage_zero),
    ("paddle-names-not-canonical", "paddle.compile.canonical:name_of", "ops keep names without popart_",
     result(lambda name: name.replace("popart_", ""))),
    ("paddle-placement-lost", "paddle.compile.compilation:place", "canonical ops are on no IPU", always(None)),
    ("paddle-casts-unplaced", "paddle.compile.canonical:_beside_its_input", "a cast that names no place has none",
     lambda original, call, makers: call),
    ("paddle-rename-missing", f"{POPART}:_rename_rewritten",
     "an op may write what was there before under the same name", always(None)),
    ("paddle-runtime-beside-ops", "paddle.compile.compilation:keep", "the runtime op does not replace the program",
     lambda original, program, ops: original(program, ops) if ops else None),
    ("paddle-runtime-feeds-reversed", f"{POPART}:_append_runtime", "the runtime reads its feeds in reverse order",
     lambda original, program, feeds, fetches: original(program, feeds[::-1], fetches)),
    ("paddle-runtime-fetches-reversed", f"{POPART}:_append_runtime",
     "the runtime writes its fetches in reverse order",
     lambda original, program, feeds, fetches: original(program, feeds, fetches[::-1])),
    ("paddle-types-not-transferred", VALUE, "enable_fp16 leaves an inference in float32", told(enable_fp16=False)),
    ("paddle-predictor-feeds-reversed", f"{INFERENCE}:_put_back", "a predictor's feeds come in reverse order",
     lambda original, block, feeds, fetches: original(block, feeds[::-1], fetches)),
    ("paddle-expands-by-tensors", "paddle.compile.canonical:_translate", "a tensor says how often expand repeats",
     _expands_by_tensors),
    ("paddle-variables-twice-in-the-graph", "paddle.compile.compilation:rebuild",
     "a graph has a second node of each variable", _of_two_nodes),
    ("paddle-first-mapping-alone", "paddle.compile.canonical:translated", "a strategy has one custom op at most",
     argument("custom_ops", lambda rows: rows[:1])),
    ("paddle-schedule-translated", "paddle.compile.canonical:_is_translated",
     "a part of what computes the learning rate becomes an op of the device",
     lambda original, type, role: original(type, role) or type == "tanh"),
    ("paddle-dump-without-values", "paddle.ir.lowering:value_of", "the dumped model has no weights", always(None)),
    ("paddle-dot-checks-ignored", VALUE, "no IR is drawn", told(dot_checks=[])),
    ("paddle-dot-of-the-forward-pass", "paddle.ir.lowering:lower", "every check draws the forward pass",
     lambda original, record, upto: original(record, "forward")),
    ("paddle-dot-of-all-ops", VALUE, "first and final op of a drawing have no effect",
     told(first_dot_op=0, final_dot_op=10**6)),
    ("paddle-dot-names-always", VALUE, "ops are drawn with names though nobody asked", told(dot_op_names=True)),
    ("paddle-copies-missing", "popart.copies:copy", "values change their IPU without a copy", always(None)),
    ("paddle-backward-stages-mirrored", "popart.lowering:Execution.behind",
     "a gradient is in the stage of its forward op", popart.in_the_forward_stage),
    ("paddle-all-reduce-missing", "popart.updates:updates", "gradients are not reduced over replicas",
     popart.trained_with(replicas=1)),
    ("paddle-all-reduce-of-one", "popart.updates:updates", "gradients are reduced though there is one replica",
     popart.trained_with(replicas=2)),
    ("paddle-accumulation-missing", "popart.updates:updates", "gradients are not accumulated",
     popart.trained_with(accumulation=1)),
    ("paddle-updates-on-first-ipu", "popart.updates:_update", "every weight is updated on IPU 0",
     argument("place", lambda place: place._replace(ipu=0))),
    ("paddle-reduced-on-first-ipu", "popart.updates:_reduced", "every gradient is accumulated and reduced on IPU 0",
     argument("place", lambda place: place._replace(ipu=0))),
    ("paddle-clip-missing", "popart.updates:updates", "gradients are not clipped", popart.trained_with(clip_norm=None)),
):  # fmt: skip
    register(Fault(_name, "ir", _place, _what, _wrong), __name__)

for _fault in (
    Fault("paddle-dump-without-weights", "ir", "ir.graph", "the weights in a dump are zero", _of_zeros),
    Fault("paddle-dump-with-a-late-op", "ir", "ir.graph", "the first op of a dump is one stage later", _first_op_late),
):
    register(_fault, __name__)
