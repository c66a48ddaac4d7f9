"""Ways to be wrong that show late, rarely or beside the values: in what lasts between calls, at edges, in tails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, Dict

from ipu_conformance.emulator.faults.catalogue import Fault, argument, patch, register
from ipu_conformance.emulator.faults.catalogue.poptorch.random_numbers import DROPOUT, SEED

EXECUTOR = "poptorch.run.executor:PoplarExecutor"
WEIGHTS = "poptorch.run.weights:DeviceWeights"
MACHINE = "poptorch.run.machine:TorchMachine"
UPDATE = "poptorch.optim.update:DeviceUpdate"
KERNELS = "poptorch.optim.kernels"
Original = Callable[..., Any]


@patch("optimizer-takes-effect-a-call-late", "update", f"{EXECUTOR}.setOptimizer",
       "the call after setOptimizer still updates with the optimizer before it")  # fmt: skip
def _a_call_late(original: Original, executor: Any, optimizer: Any) -> None:
    before = executor._compiled and executor._compiled.update
    original(executor, optimizer)
    if executor._compiled is None:
        return
    machine, rule, end = executor._compiled.machine, executor._compiled.update, type(executor._compiled.machine).end
    machine.set_update(before)

    def last_end() -> None:
        end(machine)
        machine.set_update(rule)
        machine.__dict__.pop("end", None)

    machine.end = last_end


@patch("sending-misses-the-fourth-replica", "weights", f"{WEIGHTS}.upload",
       "what is sent again does not reach the fourth replica")  # fmt: skip
def _not_to_the_fourth(original: Original, weights: Any, names: Any = None) -> None:
    before = {name: value.detach().clone() for replica in weights.replicas[3:4] for name, value in replica.items()}
    original(weights, names)
    for name, value in before.items():
        weights.replicas[3][name].data.copy_(value)


@patch("sending-leaves-whole-numbers-out", "weights", f"{WEIGHTS}.upload", "integer buffers are not sent again")
def _fractions_alone(original: Original, weights: Any, names: Any = None) -> None:
    chosen = weights.example if names is None else names
    original(weights, [name for name in chosen if weights.example[name].is_floating_point()])


@patch("loading-reaches-training-alone", "weights", f"{EXECUTOR}.load_state_dict",
       "a state that an inference model loads does not reach the device")  # fmt: skip
def _training_alone(original: Original, executor: Any, state_dict: Any, strict: bool = True) -> Any:
    if executor._training:
        return original(executor, state_dict, strict)
    return executor._user_model.load_state_dict(state_dict, strict=strict)


@patch("truth-comes-back-as-numbers", "streams", "poptorch.run.outputs:Returned.join",
       "an output of truth values comes back as whole numbers")  # fmt: skip
def _numbers(original: Original, *arguments: Any) -> Any:
    value = original(*arguments)
    return value.int() if str(value.dtype) == "torch.bool" else value


@patch("third-anchor-is-the-second", "streams", f"{EXECUTOR}._returned", "the third anchored tensor is the second one")
def _second_twice(original: Original, executor: Any, ready: Any) -> Any:
    returned = original(executor, ready)
    names = list(ready.anchored)
    if len(names) > 2:
        ready.anchored[names[2]] = ready.anchored[names[1]]
    return returned


@patch("later-groups-keep-their-rate", "update", f"{UPDATE}._use",
       "of a new optimizer, groups from the third on have the rate of the first")  # fmt: skip
def _rate_of_the_first(original: Original, update: Any, settings: Any) -> None:
    original(update, settings)
    for hyper in update._hyper[2:]:
        hyper.lr = update._hyper[0].lr


@patch("new-optimizer-brings-its-rate-alone", "update", f"{EXECUTOR}.setOptimizer",
       "setOptimizer changes the learning rate and nothing else")  # fmt: skip
def _rate_alone(original: Original, executor: Any, optimizer: Any) -> None:
    before = executor._compiled and executor._compiled.update._hyper
    original(executor, optimizer)
    if before:
        new = executor._compiled.update._hyper
        executor._compiled.update._hyper = [
            SimpleNamespace(**{**vars(old), "lr": fresh.lr}) for old, fresh in zip(before, new)
        ]


@patch("decay-beside-the-velocity", "update", f"{KERNELS}:_decayed", "weight decay of SGD is left out of its velocity")
def _beside(original: Original, weights: Any, gradients: Any, h: Any) -> Any:
    if hasattr(h, "dampening") and h.momentum and h.weight_decay:
        for weight in weights:
            weight.mul_(1 - h.lr * h.weight_decay)
        return original(weights, gradients, SimpleNamespace(**{**vars(h), "weight_decay": 0}))
    return original(weights, gradients, h)


@patch("decay-scaled-with-the-loss", "update", f"{UPDATE}._use", "weight decay is divided by the loss scaling")
def _decay_scaled(original: Original, update: Any, settings: Any) -> None:
    original(update, settings)
    for hyper in update._hyper:
        hyper.weight_decay = hyper.weight_decay / update.loss_scale


@patch("steps-counted-to-six", "update", f"{KERNELS}:_corrections", "the correction of bias ends with the sixth step")
def _to_six(original: Original, h: Any, t: int) -> Any:
    return original(h, t if t <= 6 else 10**6)


@patch("epsilon-before-the-correction", "update", f"{KERNELS}:_adam_step",
       "Adam adds epsilon to the root before it is corrected")  # fmt: skip
def _epsilon_first(original: Original, weights: Any, gradients: Any, state: Any, h: Any, t: int) -> None:
    root = (1 - h.beta2**t) ** 0.5 if h.bias_correction else 1.0
    original(weights, gradients, state, SimpleNamespace(**{**vars(h), "eps": h.eps / root}), t)


@patch("decay-after-the-step", "update", f"{UPDATE}._run", "AdamW shrinks weights after the step, not before")
def _decay_after(original: Original, update: Any, group: int, t: int, names: Any, weights: Any, *rest: Any) -> None:
    right = update._hyper[group]
    late = update.settings.kind == "adamw"
    update._hyper[group] = SimpleNamespace(**{**vars(right), "weight_decay": 0}) if late else right
    try:
        original(update, group, t, names, weights, *rest)
    finally:
        update._hyper[group] = right
    for name in names if late else ():
        weights[name].mul_(1 - right.lr * right.weight_decay)


@patch("lamb-trusts-vectors-as-they-are", "update", f"{UPDATE}._run", "LAMB has a trust ratio of one for vectors")
def _vectors(original: Original, update: Any, group: int, t: int, names: Any, weights: Any, *rest: Any) -> None:
    vectors = [name for name in names if update.settings.kind == "lamb" and weights[name].dim() < 2]
    before = {name: weights[name].clone() for name in vectors}
    original(update, group, t, names, weights, *rest)
    h, state = update._hyper[group], rest[-1]
    for name, old in before.items():
        first, second = state[name]["first"], state[name]["second"]
        if h.bias_correction:
            first, second = first / (1 - h.beta1**t), second / (1 - h.beta2**t)
        weights[name].copy_(old - h.lr * (first / (second.sqrt() + h.eps) + h.weight_decay * old))


@patch("clipping-of-half-the-weights", "update", f"{UPDATE}.clip_factor",
       "a norm is that of the first half of the weights")  # fmt: skip
def _half_norm(original: Original, update: Any, gradients: Any) -> float:
    names = list(gradients)
    return original(update, {name: gradients[name] for name in names[: max(1, len(names) // 2)]})


@patch("statistics-of-the-last-micro-batch", "weights", f"{MACHINE}.forward",
       "while gradients accumulate, only the last micro-batch moves statistics")  # fmt: skip
def _last_moves(original: Original, machine: Any, replica: int, stage: int, micro_batch: int, *rest: Any) -> Any:
    weights = machine.replica_weights[replica]
    kept = {name: weights[name].clone() for name in machine.stages[stage].weights if name not in machine.trainable}
    result = original(machine, replica, stage, micro_batch, *rest)
    if machine.update_rule is not None and (micro_batch + 1) % machine.accumulation:
        for name, value in kept.items():
            weights[name].data.copy_(value)
    return result


@patch("buffers-are-means-of-replicas", "weights", "poptorch.run.weights:DeviceWeights._for_host",
       "the host gets the mean of the replicas' buffers")  # fmt: skip
def _mean_of_replicas(original: Original, weights: Any, name: str) -> Any:
    import torch

    value = original(weights, name)
    if name in weights.parameters or not value.is_floating_point():
        return value
    return torch.stack([replica[name].detach() for replica in weights.replicas]).mean(0)


@patch("sending-weights-resets-the-state", "update", f"{EXECUTOR}.copyWeightsToDevice",
       "weights that are sent reset the optimizer's state")  # fmt: skip
def _resets(original: Original, executor: Any) -> None:
    original(executor)
    for state in executor.compiled.machine.state:
        for slots in state.values():
            for value in slots.values():
                value.zero_()


@patch("sent-weights-count-as-newer", "weights", f"{EXECUTOR}.copyWeightsToDevice",
       "the device's weights count as newer than the host's after they were sent")  # fmt: skip
def _still_newer(original: Original, executor: Any) -> None:
    original(executor)
    executor._dirty = executor._training


@patch("sending-weights-leaves-buffers", "weights", "poptorch.run.weights:DeviceWeights.upload",
       "sending all weights sends parameters alone")  # fmt: skip
def _parameters_alone(original: Original, weights: Any, names: Any = None) -> None:
    original(weights, list(weights.parameters) if names is None else names)


@patch("weights-without-gradients-decay", "update", f"{MACHINE}.update",
       "a weight that has no part in the loss decays all the same")  # fmt: skip
def _decays(original: Original, machine: Any, replica: int, stage: int, gradients: Any) -> None:
    original(machine, replica, stage, gradients)
    rule = machine.update_rule
    idle = machine.trainable - {name for each in machine.stages for name in each.weights}
    for name in idle & set(rule._group_of) if rule is not None and stage == 0 else ():
        h = rule._hyper[rule._group_of[name]]
        machine.replica_weights[replica][name].data.mul_(1 - h.lr * h.weight_decay)


@patch("outputs-share-their-memory", "streams", "poptorch.run.outputs:Returned.join",
       "a call writes over what the call before it returned", remembers=True)  # fmt: skip
def _shared_memory(memory: Dict[Any, Any], original: Original, returned: Any, outputs: Any, leaf: int) -> Any:
    value = original(returned, outputs, leaf)
    held: Any = memory.setdefault((id(returned), leaf, value.shape, value.dtype), value)
    held.data.copy_(value)
    return held


@patch("not-a-number-is-zero", "reduce", f"{MACHINE}._sum", "gradients that are not numbers count as zero")
def _nan_is_zero(original: Original, *arguments: Any) -> Any:
    return [value.nan_to_num(nan=0.0, posinf=float("inf"), neginf=float("-inf")) for value in original(*arguments)]


@patch("outputs-that-are-no-numbers-are-zero", "numerics", "poptorch.run.outputs:Returned.join",
       "outputs that are not numbers come back as zero")  # fmt: skip
def _nan_output(original: Original, *arguments: Any) -> Any:
    value = original(*arguments)
    return value.nan_to_num(nan=0.0, posinf=float("inf"), neginf=float("-inf")) if value.is_floating_point() else value


@patch("running-mean-of-four", "reduce", f"{MACHINE}._folded", "a running mean takes every gradient after the third "
       "for the fourth")  # fmt: skip
def _of_four(original: Original, machine: Any, old: Any, fresh: Any, count: int) -> Any:
    return original(machine, old, fresh, min(count, 3))


@patch("accumulators-lose-small-gradients", "numerics", f"{MACHINE}._folded",
       "gradients are accumulated with the bits of a bfloat16")  # fmt: skip
def _bfloat(original: Original, *arguments: Any) -> Any:
    value = original(*arguments)
    return value.bfloat16().to(value.dtype)


@patch("sums-of-four-outputs", "streams", "core.streams:select_sum", "Sum adds up the first four outputs of a replica")
def _sum_of_four(original: Original, layout: Any) -> Any:
    right = original(layout)
    return type(right)(tuple(entry[:4] for entry in right.entries))


@patch("pairs-of-a-mask-alike", "numerics", DROPOUT, "two values beside each other are dropped together")
def _pairs(original: Original, value: Any, *arguments: Any) -> Any:
    mask = original(value.detach().new_ones(value.numel()), *arguments)
    even = mask[: mask.numel() // 2 * 2]
    even[1::2] = even[::2].clone()
    return value * mask.reshape(value.shape)


@patch("normal-numbers-without-tails", "numerics", "poptorch.run.random_state:Seeded.__call__",
       "normal numbers lie within two and a half deviations")  # fmt: skip
def _no_tails(original: Original, operation: Any, *arguments: Any, **settings: Any) -> Any:
    drawn = original(operation, *arguments, **settings)
    return drawn.clamp(-2.5, 2.5) if operation.__name__.startswith("randn") else drawn


@patch("loss-scale-halves-once", "update", "poptorch.run.loss_scaling:AutomaticScale._next",
       "a loss scale that was halved is doubled next, whatever the gradients")  # fmt: skip
def _halves_once(original: Original, scale: Any, iteration: int) -> float:
    factors = scale._factors
    return factors[-1] * 2 if len(factors) > 1 and factors[-1] < factors[-2] else original(scale, iteration)


@patch("repeated-rows-thrice-at-most", "reduce", f"{MACHINE}.backward",
       "a row of an embedding that is looked up more than twice has the gradients of two look-ups")  # fmt: skip
def _thrice(original: Original, *arguments: Any) -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class _Rows(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten.embedding_dense_backward.default:
                gradient, indices, *rest = args
                flat = indices.flatten()
                seen: Dict[int, int] = {}
                kept = torch.ones(flat.numel(), dtype=gradient.dtype)
                for place, index in enumerate(flat.tolist()):
                    seen[index] = seen.get(index, 0) + 1
                    kept[place] = float(seen[index] <= 2)
                args = (gradient * kept.reshape(*indices.shape, 1), indices, *rest)
            return function(*args, **(kwargs or {}))

    with _Rows():
        return original(*arguments)


@patch("anchors-of-the-run-before", "streams", f"{EXECUTOR}._returned",
       "an anchored tensor is that of the run before", remembers=True)  # fmt: skip
def _anchors_before(memory: Dict[Any, Any], original: Original, executor: Any, ready: Any) -> Any:
    result = original(executor, ready)
    fresh = dict(ready.anchored)
    ready.anchored.update(memory.get(id(ready), {}))
    memory[id(ready)] = fresh
    return result


@patch("cycles-of-all-runs", "ir", "poptorch.run.inspection:Inspection.cycleCount",
       "cycles are those of all runs together", remembers=True)  # fmt: skip
def _of_all_runs(memory: Dict[Any, int], original: Original, executor: Any) -> int:
    return original(executor) * max(1, executor._runs)


@patch("state-of-chance-without-runs", "numerics", f"{EXECUTOR}._set_random_state",
       "a random state that is set goes on with the runs of the model")  # fmt: skip
def _without_runs(original: Original, executor: Any, seed: int, runs: int) -> None:
    original(executor, seed, max(runs, executor._runs))


@patch("first-micro-batch-of-no-inputs", "reduce", f"{MACHINE}.backward",
       "of a model without inputs the first micro-batch of an update alone has gradients")  # fmt: skip
def _first_alone(original: Original, machine: Any, replica: int, stage: int, micro_batch: int, *rest: Any) -> Any:
    if not machine.inputs[replica][micro_batch] and micro_batch % machine.accumulation:
        return ()
    return original(machine, replica, stage, micro_batch, *rest)


@patch("copied-optimizer-begins-anew", "update", "poptorch.optim.optimizers:Optimizer.__getstate__",
       "a copy of an optimizer has no state of the device")  # fmt: skip
def _begins_anew(original: Original, optimizer: Any) -> Any:
    return {**original(optimizer), "_on_host": None}


@patch("missing-argument-misnamed", "streams", "poptorch.run.calls:bind", "the first argument is said to be missing, "
       "whichever is")  # fmt: skip
def _misnamed(original: Original, signature: Any, args: Any, kwargs: Any) -> Any:
    try:
        return original(signature, args, kwargs)
    except Exception as error:
        if "missing" not in str(error):
            raise
        raise type(error)(f"Mandatory parameter {next(iter(signature.parameters))} missing") from error


for _fault in (
    Fault("option-without-effect-set-late", "plan",
          "poptorch.options.sections:_PrecisionOptions.runningStatisticsAlwaysFloat",
          "options in use take an option that has no effect", lambda original, section, value: section),
    Fault("log-lines-once-too-often", "streams", "poptorch.options.diagnostics:RepeatLimit.__init__",
          "a log line is repeated once more than allowed", argument("most", lambda most: most and most + 1)),
    Fault("masks-repeat-after-seven-micro-batches", "numerics", SEED, "the eighth micro-batch draws what the first one "
          "drew", argument("micro_batch", lambda micro_batch: micro_batch % 7)),
):  # fmt: skip
    register(_fault, __name__)
