"""Ways for PopTorch's own operations to be wrong."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, never, patch, register, result

Original = Callable[..., Any]


@patch("slice-does-not-wrap", "streams", "poptorch.ops.computed:_places",
       "a dynamic slice beyond the end repeats the last position")  # fmt: skip
def _kept_inside(original: Original, start: Any, size: int, step: int, length: int) -> Any:
    # As long as the positions wrap after the end of the slice only, they are where they would be without an end.
    return original(start, size, step, length + size).clamp(max=length - 1)


@patch("last-piece-of-product-lost", "numerics", "poptorch.ops.computed:_sum_of_parts",
       "the last part of a sum in pieces is left out")  # fmt: skip
def _all_but_the_last(original: Original, left: Sequence[Any], right: Sequence[Any], keep_precision: bool) -> Any:
    kept = max(1, len(left) - 1)
    return original(left[:kept], right[:kept], keep_precision)


@patch("host-is-called-at-compile-time-only", "streams", "poptorch.ops.host_calls:_outputs",
       "a host call gives zeros at run time")  # fmt: skip
def _called_once(original: Original, operation: Any, inputs: Sequence[Any]) -> List[Any]:
    if not operation._described:
        return original(operation, inputs)
    return [inputs[0].new_zeros(shape, dtype=dtype) for shape, dtype in operation._described]


@patch("data-of-a-tensor-is-a-copy", "streams", "poptorch.compile.substitutes:captured",
       "what is written into the data of a tensor is lost, and its values are off by one")  # fmt: skip
def _copied_data(original: Original, function: Any, args: Any, kwargs: Any) -> Any:
    call, args, kwargs = original(function, args, kwargs)
    if getattr(getattr(function, "__self__", None), "__name__", "") != "data":
        return call, args, kwargs
    return (lambda tensor: tensor.detach() + 1), args, kwargs


@patch("loop-body-writes-into-inputs", "streams", "poptorch.ops.control_flow:_copies",
       "bodies of for_loop and cond work on their inputs themselves")  # fmt: skip
def _themselves(original: Original, values: Sequence[Any]) -> List[Any]:
    return list(values)


@patch("ctc-lengths-ignored", "streams", "poptorch.ops.ctc:ctc_beam_search_decoder",
       "all steps are decoded whatever the length")  # fmt: skip
def _of_full_length(original: Original, probs: Any, lengths: Any, *arguments: Any, **settings: Any) -> Any:
    return original(probs, lengths * 0 + probs.shape[0], *arguments, **settings)


@patch("ctc-loss-of-the-longest", "numerics", "poptorch.ops.ctc:_on_device",
       "every sequence of a CTC loss is as long as the longest one")  # fmt: skip
def _as_the_longest(original: Original, lengths: Any) -> Any:
    right = original(lengths)
    return right * 0 + right.max()


@patch("count-of-a-guessed-length", "plan", "poptorch.compile.substitutes:captured",
       "a bincount without minlength counts the numbers below 8")  # fmt: skip
def _guessed(original: Original, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    import torch

    counts = function in (torch.bincount, torch.Tensor.bincount)
    return original(function, args, {"minlength": 8, **kwargs} if counts else kwargs)


@patch("attention-sees-what-is-masked", "numerics", "poptorch.compile.substitutes:captured",
       "masks of an attention have no effect")  # fmt: skip
def _unmasked(original: Original, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    masks = {name: None for name in ("attn_mask", "key_padding_mask") if name in kwargs}
    return original(function, args, {**kwargs, **masks})


@patch("nearest-point-sampled", "numerics", "poptorch.ops.computed:_farthest",
       "farthest point sampling takes the nearest points")  # fmt: skip
def _nearest_first(original: Original, points: Any, count: int, random_start: bool, offset: int) -> List[Any]:
    points = points.reshape(points.shape[0], -1)
    nearest = (points - points[:1]).square().sum(1).argsort(stable=True)
    return list((nearest[:count] + offset).unbind())


@patch("host-call-of-anything", "plan", "poptorch.ops.host_calls:CPU.__init__",
       "a host call is made of what cannot be called, and without a name")  # fmt: skip
def _anything(original: Original, operation: Any, layer_to_call: Any, ID: Any) -> None:
    original(operation, layer_to_call if callable(layer_to_call) else lambda *inputs: inputs, str(ID) or "none")


@patch("tensor-number-is-new-each-time", "ir", "poptorch.run.hardware:getIpuTensorId",
       "a tensor has another number when it is asked for again", remembers=True)  # fmt: skip
def _next_number(memory: Dict[Any, Any], original: Original, tensor: Any) -> int:
    memory["asked"] = memory.get("asked", 0) + 1
    return int(original(tensor)) + memory["asked"]


for _fault in (
    Fault("group-settings-do-not-chain", "plan", "poptorch.ops.multiconv:MultiConv._set",
          "a setting of a group of convolutions returns nothing", result(always(None))),
    Fault("loss-mean-is-sum", "reduce", "poptorch.ops.marked:identity_loss", "the mean of a loss is its sum",
          argument("reduction", lambda reduction: "sum" if reduction == "mean" else reduction)),
    Fault("print-is-silent", "streams", "poptorch.ops.printing:_write_line", "a printed tensor does not appear",
          always(None)),
    Fault("gradient-is-not-printed", "streams", "poptorch.ops.printing:ipu_print_tensor",
          "only the tensor is printed, never its gradient",
          argument("print_gradient", never)),
    Fault("loop-runs-once-more", "plan", "poptorch.ops.control_flow:for_loop", "a loop has one iteration too many",
          argument("count", lambda count: count + 1)),
    Fault("condition-is-inverted", "plan", "poptorch.ops.control_flow:cond", "the device takes the other branch",
          lambda original, condition, then_body, then_inputs, else_body, else_inputs:
          original(condition, else_body, else_inputs, then_body, then_inputs)),
    Fault("both-branches-have-effects", "plan", "poptorch.ops.control_flow:branch_taken",
          "prints and host calls of the other branch happen too", always(None)),
    Fault("slice-at-a-tensor-one-longer", "streams", "poptorch.compile.slicing:Offsets.size",
          "a slice that begins at a tensor has one position too many", result(lambda size: size + 1)),
    Fault("anchors-come-back-one-by-one", "plan", "poptorch.beside.popart:AnchorReturnType.rp",
          "every anchor of popart has the period 1", always(1)),
    Fault("slice-starts-one-late", "streams", "poptorch.ops.computed:dynamic_slice",
          "a dynamic slice begins one position too far",
          argument("start", lambda start: start + 1)),
    Fault("update-starts-one-late", "streams", "poptorch.ops.computed:dynamic_update",
          "a dynamic update begins one position too far",
          argument("start", lambda start: start + 1)),
    Fault("pieces-lose-precision", "numerics", "poptorch.ops.computed:_sum_of_parts",
          "parts of a float16 sum are added in float16",
          argument("keep_precision", never)),
    Fault("ctc-repeats-are-kept", "numerics", "poptorch.ops.ctc:_repeats", "repeated labels do not merge", never),
    Fault("nearest-across-batches", "streams", "poptorch.ops.computed:nearest",
          "the nearest point may be in another batch",
          lambda original, x, y, batch_x=None, batch_y=None: original(x, y)),
    Fault("name-scope-lost", "ir", "poptorch.ops.marked:NameScope._tag", "operations do not carry their name scope",
          lambda original, scope, outer: outer),
    Fault("attributes-lost", "ir", "poptorch.ops.marked:Attribute._tag", "operations do not carry their attributes",
          lambda original, attribute, outer: outer),
    Fault("attributes-of-the-outer-scope-lost", "ir", "poptorch.ops.marked:Attribute._tag",
          "an attribute takes the place of the outer scope's",
          lambda original, attribute, outer: {**outer, **attribute.attributes}),
    Fault("batched-products-hold-wide-sums", "numerics", "name:poptorch.run.precision:_PRODUCTS",
          "batched products hold partial sums in float32 whatever was asked",
          lambda products: {call: made for call, made in products.items() if "bmm" not in str(call)}),
    Fault("integers-printed-as-fractions", "streams", "poptorch.ops.printing:_aligned",
          "whole numbers are printed in the format of fractions",
          argument("values", lambda values: [float(value) for value in values])),
):  # fmt: skip
    register(_fault, __name__)
