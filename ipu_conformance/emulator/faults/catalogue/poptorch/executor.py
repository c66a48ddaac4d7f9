"""Ways for a model to be wrapped, moved, called, reduced and returned wrongly."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any, Callable, Sequence, Tuple

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, never, patch, register, result

EXECUTOR = "poptorch.run.executor:PoplarExecutor"
Original = Callable[..., Any]

_numbers = itertools.count()


def _still_dirty(original: Original, executor: Any) -> None:
    original(executor)
    executor._dirty = True


def _read_back_first(original: Original, executor: Any) -> None:
    executor.copyWeightsToHost()
    original(executor)


def _with_the_host_s(original: Original, executor: Any, call: Any) -> Any:
    executor.compiled.weights.upload()
    return original(executor, call)


def _nothing_seen(original: Original, executor: Any) -> None:
    executor._seen_version = (None, -1)
    original(executor)


def _copied_back(original: Original, executor: Any, call: Any) -> Any:
    returned = original(executor, call)
    executor.copyWeightsToHost()
    return returned


def _weights_left_behind(original: Original, executor: Any) -> None:
    executor._dirty = False
    original(executor)


def _without_upload(original: Original, executor: Any) -> None:
    vars(executor)["_upload"] = lambda: None
    try:
        original(executor)
    finally:
        del vars(executor)["_upload"]


def _chance_forgotten(original: Original, executor: Any) -> None:
    original(executor)
    executor._runs = 0


def _attached(original: Original, executor: Any, *arguments: Any, **settings: Any) -> None:
    original(executor, *arguments, **settings)
    if not executor._attached:
        executor.attachToDevice()


def _compiled_again(original: Original, executor: Any, *arguments: Any, **settings: Any) -> None:
    executor._compiled = None
    original(executor, *arguments, **settings)


for _name, _method, _what, _wrong in (
    ("touch-copies-each-time", "copyWeightsToHost", "every touch copies, also when nothing is newer", _still_dirty),
    ("upload-reads-back-first", "copyWeightsToDevice", "sending weights first brings the device's home",
     _read_back_first),
    ("host-weights-used", "_run", "the device computes with the host's weights of the moment", _with_the_host_s),
    ("inference-stays-behind", "_follow_trainer", "an inference model never follows its training model", always(None)),
    ("inference-uploads-each-time", "_follow_trainer", "an inference model is sent its weights before each run",
     _nothing_seen),
    ("inference-buffers-come-home", "_run", "buffers that inference changes come home by themselves", _copied_back),
    ("loaded-state-stays-on-host", "load_state_dict", "a loaded state does not reach the device",
     lambda original, executor, state, strict=True: executor._user_model.load_state_dict(state, strict=strict)),
    ("destroy-loses-weights", "detachFromDevice", "destroying and detaching leave the trained weights behind",
     _weights_left_behind),
    ("attach-keeps-old-weights", "attachToDevice", "attaching does not send the host's weights", _without_upload),
    ("detach-forgets-chance", "detachFromDevice", "random numbers restart after detaching", _chance_forgotten),
    ("state-of-chance-ignored", "_set_random_state", "a random state that is set has no effect", always(None)),
    ("compiling-attaches-always", "compile", "compiling attaches whatever the connection", _attached),
    ("compiles-again", "compile", "a second compile replaces the first", _compiled_again),
):  # fmt: skip
    register(Fault(_name, "weights", f"{EXECUTOR}.{_method}", _what, _wrong), __name__)


# Weights.

for _fault in (
    Fault("touch-unnoticed", "weights", "poptorch.run.wrapping:_touch", "touching a weight does not bring it home",
          always(None)),
    Fault("destroy-leaves-wrapped", "weights", "poptorch.run.wrapping:unwrap", "a destroyed model stays wrapped",
          always(None)),
    Fault("named-buffers-bring-all", "weights", "poptorch.run.weights:DeviceWeights.upload",
          "sending some buffers sends all weights", argument("names", always(None))),
    Fault("groups-share-weights", "weights", "poptorch.run.weights:DeviceWeights._of_replica",
          "all replicas have the weights of the first group",
          argument("replica", always(0))),
):  # fmt: skip
    register(_fault, __name__)


# Arguments and outputs.


@patch("layout-is-told-each-time", "streams", f"{EXECUTOR}._tell_of_layout",
       "a model warns of every input that is not contiguous")  # fmt: skip
def _told_again(original: Original, executor: Any, call: Any) -> None:
    original(executor, call)
    executor._told_of_layout = False


@patch("uneven-batch-cut", "streams", "poptorch.run.micro_batches:Feed._micro_size",
       "a batch that does not divide loses its end")  # fmt: skip
def _cut(original: Original, feed: Any, tensor: Any) -> Any:
    try:
        return original(feed, tensor)
    except AssertionError:
        return max(1, len(tensor) // feed.layout.inputs) if tensor.dim() else None


@patch("group-gets-own-input", "streams", "core.streams:Layout.positions",
       "replicas of a group are fed each their own input")  # fmt: skip
def _ungrouped(original: Original, layout: Any) -> Any:
    return original(replace(layout, grouping=1)) % layout.inputs


def _default(training: bool, name: str) -> Callable[..., Any]:
    """Another default of the output mode, for training or for inference."""

    def wrong(original: Original, options: Any, for_training: bool) -> Any:
        mode, period = original(options, for_training)
        return (
            type(mode)[name] if options.output_mode.name == "Default" and for_training == training else mode
        ), period

    return wrong


@patch("every-nth-is-the-first", "streams", "poptorch.run.outputs:Returned._select",
       "EveryN returns the first of each N")  # fmt: skip
def _first_of_each(original: Original, returned: Any) -> Any:
    selection = original(returned)
    back = returned.period - 1 if returned.mode.name == "EveryN" else 0
    return type(selection)(
        tuple(tuple(s._replace(micro_batch=s.micro_batch - back) for s in entry) for entry in selection.entries)
    )


@patch("sum-over-replicas", "streams", "core.streams:select_sum", "Sum adds up replicas too")
def _one_sum(original: Original, layout: Any) -> Any:
    selection = original(layout)
    return type(selection)((tuple(source for entry in selection.entries for source in entry),))


@patch("third-group-of-replicas-follows-the-second", "reduce", "poptorch.run.machine:TorchMachine._sums",
       "replicas of the third group and later ones learn from the gradients of the second")  # fmt: skip
def _second_group(original: Original, machine: Any, gradients: Any) -> Any:
    reduced = original(machine, gradients)
    for name, group in machine.group_of.items():
        for replica, number in enumerate(group):
            if name in reduced[replica] and number > 1:
                reduced[replica][name] = reduced[group.index(1)][name]
    return reduced


@patch("groups-average-over-themselves", "reduce", "poptorch.run.machine:TorchMachine._sums",
       "gradients of a group of replicas are divided by its size, not by the number of all replicas")  # fmt: skip
def _own_mean(original: Original, machine: Any, gradients: Any) -> Any:
    reduced = original(machine, gradients)
    return [_times(machine, each, lambda group, replica: len(group) / group.count(group[replica]), replica)
            for replica, each in enumerate(reduced)]  # fmt: skip


@patch("running-groups-divide-by-all", "reduce", "poptorch.run.machine:TorchMachine._sums",
       "the running mean of a group of replicas is divided by the number of all replicas")  # fmt: skip
def _mean_of_all(original: Original, machine: Any, gradients: Any) -> Any:
    reduced = original(machine, gradients)
    if not (machine.update_rule and machine.update_rule.running_mean):
        return reduced
    return [_times(machine, each, lambda group, replica: group.count(group[replica]) / len(group), replica)
            for replica, each in enumerate(reduced)]  # fmt: skip


def _times(machine: Any, gradients: Any, factor: Any, replica: int) -> Any:
    """The gradients of a replica, those of weights in groups times a factor."""
    grouped = machine.group_of
    return {name: value * factor(grouped[name], replica) if name in grouped else value
            for name, value in gradients.items()}  # fmt: skip


@patch("every-anchor-is-the-first", "streams", "poptorch.compile.compiled:_anchors",
       "all anchored tensors have the values of the first")  # fmt: skip
def _first_anchor(original: Original, *arguments: Any) -> Any:
    anchors, extra, watched = original(*arguments)
    return tuple(replace(anchor, leaf=anchors[0].leaf) for anchor in anchors), extra, watched


@patch("files-forget-runs", "weights", "poptorch.run.executables:load_into",
       "a model that is loaded draws from the beginning")  # fmt: skip
def _from_the_beginning(original: Original, executor: Any, filename: str) -> None:
    original(executor, filename)
    executor.rng_state = [executor._seed, 0]


@patch("written-inputs-stay", "streams", "poptorch.run.micro_batches:Feed.write_back",
       "what a model writes into its second input is not the caller's")  # fmt: skip
def _not_written(original: Original, feed: Any, tensors: Any) -> Any:
    feed._copies = {number: copy for number, copy in feed._copies.items() if number != 1}
    return original(feed, tensors)


@patch("anchors-follow-the-model", "streams", "poptorch.compile.compiled:_anchors",
       "an anchored tensor has the model's output mode")  # fmt: skip
def _mode_of_the_model(
    original: Original, captured: Any, options: Any, layout: Any, default: Any, weights: Any
) -> Tuple[Any, Any, Any]:
    anchors, extra, watched = original(captured, options, layout, default, weights)
    return tuple(replace(anchor, returned=default) for anchor in anchors), extra, watched


for _fault in (
    Fault("changed-arguments-accepted", "streams", "poptorch.run.calls:Expected.check",
          "a model is called with what it was not compiled for", always(None)),
    Fault("changed-constants-accepted", "streams", "poptorch.run.calls:_same",
          "another value of a constant is ignored", always(True)),
    Fault("training-returns-all", "streams", "poptorch.run.outputs:mode_of",
          "a training model returns everything by default", _default(True, "All")),
    Fault("inference-returns-final", "streams", "poptorch.run.outputs:mode_of",
          "an inference model returns the last micro-batch by default", _default(False, "Final")),
    Fault("single-value-is-vector", "streams", "poptorch.run.outputs:Returned.join",
          "a single 0-d output is a vector of one", result(lambda value: value if value.dim() else value.reshape(1))),
    Fault("structure-flattened", "streams", "poptorch.compile.capture:Captured.rebuild",
          "outputs come back as a list", lambda original, captured, leaves: list(leaves)),
):  # fmt: skip
    register(_fault, __name__)


@patch("output-is-its-input", "streams", "poptorch.run.outputs:Returned.join",
       "what a model hands through is the caller's own tensor")  # fmt: skip
def _uncopied(original: Original, returned: Any, slot_outputs: Any, leaf: int) -> Any:
    joined = original(returned, slot_outputs, leaf)
    only = slot_outputs[0][0][leaf]
    return only if only.shape == joined.shape and only.dtype == joined.dtype else joined


@patch("last-loss-lost", "streams", "poptorch.run.outputs:Returned.join", "the last of several losses is left out")
def _all_but_the_last(original: Original, returned: Any, slot_outputs: Any, leaf: int) -> Any:
    joined = original(returned, slot_outputs, leaf)
    return joined[:-1] if joined.dim() == 1 < len(joined) and not slot_outputs[0][0][leaf].dim() else joined


@patch("keys-taken-by-place", "streams", "poptorch.run.calls:Call.order_as",
       "tensors of a dictionary with its keys in another order are taken in the order in which they come")  # fmt: skip
def _by_place(original: Original, call: Any, template: Any) -> None:
    given = call.tensors
    original(call, template)
    for place, tensor in zip(call.places, given):
        call.leaves[place] = tensor


@patch("half-computed-in-single", "numerics", "poptorch.run.micro_batches:device_type",
       "inputs and weights of 16 bits have 32 on the device")  # fmt: skip
def _in_single(original: Original, dtype: Any) -> Any:
    import torch

    return torch.float32 if dtype == torch.float16 else original(dtype)


@patch("synthetic-outputs-are-single", "streams", "poptorch.run.outputs:unread",
       "what is not read back is one number")  # fmt: skip
def _single(original: Original, slot_outputs: Any) -> Any:
    return [[{leaf: value.sum() for leaf, value in leaves.items()} for leaves in replica] for replica in slot_outputs]


@patch("loss-comes-back-scaled", "streams", f"{EXECUTOR}._returned", "outputs are those of the scaled loss")
def _scaled(original: Original, executor: Any, ready: Any) -> Any:
    from torch.utils import _pytree

    scale = ready.machine.scaling.scale
    return _pytree.tree_map(lambda leaf: leaf * scale if scale != 1 else leaf, original(executor, ready))


@patch("off-chip-state-loses-bits", "weights", f"{EXECUTOR}.copyWeightsToHost",
       "weights whose optimizer state is off the chip lose bits")  # fmt: skip
def _coarse(original: Original, executor: Any) -> None:
    original(executor)
    if executor._options.TensorLocations.toDict() != type(executor._options.TensorLocations)().toDict():
        for weight in executor._plain.parameters():
            weight.data = weight.data.bfloat16().to(weight.dtype)


@patch("detaching-widens-weights", "weights", f"{EXECUTOR}.detachFromDevice", "weights come home in float32")
def _widened(original: Original, executor: Any) -> None:
    original(executor)
    executor._user_model.float()


for _fault in (
    Fault("half-outputs-come-back-wide", "streams", "poptorch.run.outputs:Returned.join",
          "outputs in float16 are float32 on the host",
          result(lambda value: value.float() if value.is_floating_point() else value)),
    Fault("inputs-arrive-in-bfloat16", "numerics", "poptorch.run.micro_batches:narrowed",
          "inputs keep eight bits of their numbers",
          result(lambda value: value.bfloat16().to(value.dtype) if value.is_floating_point() else value)),
    Fault("executor-s-model-is-a-copy", "weights", "poptorch.run.inspection:Inspection.model",
          "the executor's model is another one than the user's", result(copy.copy)),
    Fault("perf-counters-once-a-call", "ir", "poptorch.run.inspection:RunTimes.add",
          "a call has one moment however many micro-batches it has", argument("steps", always(1))),
    Fault("compilation-takes-no-time", "ir", "poptorch.run.inspection:Inspection.compilationTime",
          "compiling takes no time, even before it happens", result(always(timedelta()))),
    Fault("evaluation-mode-ignored", "plan", f"{EXECUTOR}._make_ready",
          "a model in evaluation mode is compiled as if it were trained",
          lambda original, executor, call: (executor._plain.train(), original(executor, call))[1]),
    Fault("trace-durations-doubled", "plan", "core.trace:chrome", "every slot of the file takes twice as long",
          result(lambda file: {**file, "traceEvents": [
              {**event, "dur": 2 * event["dur"]} if "dur" in event else event for event in file["traceEvents"]]})),
):  # fmt: skip
    register(_fault, __name__)


# Losses and gradients.


@patch("loss-inside-wins", "reduce", "poptorch.compile.capture:_independent",
       "losses that feed another one count, and the final one does not")  # fmt: skip
def _inside(original: Original, losses: Sequence[Any]) -> Tuple[Any, ...]:
    final = original(losses)
    return tuple(loss for loss in losses if loss not in final)[:1] or final


@patch("running-mean-is-sum", "reduce", "poptorch.run.machine:TorchMachine._folded",
       "a running mean is accumulated as a sum")  # fmt: skip
def _summed(original: Original, machine: Any, old: Any, fresh: Any, count: int) -> Any:
    rule = machine.update_rule
    if old is None or rule is None or not rule.running_mean:
        return original(machine, old, fresh, count)
    return (old.float() + fresh.float()).to(rule.accum_type)


register(
    Fault("accumulators-not-cleared", "reduce", "poptorch.run.machine:TorchMachine._forget",
          "gradients of earlier updates stay in the accumulators", never), __name__
)  # fmt: skip
register(
    Fault("cache-never-used", "ir", "poptorch.run.executables:digest",
          "every compilation adds a file to the cache", result(lambda digest: f"{digest}{next(_numbers)}")), __name__
)  # fmt: skip
register(
    Fault("loaded-model-stays-offline", "plan", "poptorch.run.executables:_connected",
          "a model that was exported for an offline target has no device when it is loaded",
          lambda original, options: options), __name__
)  # fmt: skip
register(
    Fault("compiled-option-edited-while-loading", "streams", "name:poptorch.run.executables:_RUNNING_ONLY",
          "an executable takes another output mode when it is loaded", lambda names: [*names, "output_mode"]), __name__
)  # fmt: skip
