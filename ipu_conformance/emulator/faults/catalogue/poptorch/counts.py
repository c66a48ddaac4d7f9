"""Ways to be right for the first of a kind, or for few of it, and wrong for those that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict

from ipu_conformance.emulator.faults.catalogue import Fault, always, argument, patch, register
from ipu_conformance.emulator.faults.catalogue.poptorch.random_numbers import DROPOUT, SEED

MACHINE = "poptorch.run.machine:TorchMachine"
Original = Callable[..., Any]


@patch("seed-goes-on-with-the-runs", "numerics", SEED, "a call draws what the next seed drew in the call before")
def _next_seed(original: Original, seed: int, run: int, *place: int) -> int:
    return original(seed + run, 0, *place)


@patch("masks-same-for-every-sample", "numerics", DROPOUT, "all samples of a micro-batch are dropped alike")
def _one_row(original: Original, value: Any, *arguments: Any) -> Any:
    if value.dim() < 2:
        return original(value, *arguments)
    row = value[:1].detach()
    return value * original(row.new_ones(row.shape), *arguments)


@patch("masks-begin-again-in-the-middle", "numerics", DROPOUT, "the second half of a mask is the first")
def _half_a_mask(original: Original, value: Any, *arguments: Any) -> Any:
    mask = original(value.detach().new_ones(value.numel()), *arguments)
    half = mask.numel() // 2
    mask[half : 2 * half] = mask[:half].clone()
    return value * mask.reshape(value.shape)


@patch("dropout-drops-a-share", "numerics", DROPOUT, "dropout drops exactly its share of the values, none by itself")
def _exact_share(original: Original, value: Any, p: float, train: bool, ordinal: int) -> Any:
    import torch

    kept = original(torch.ones(value.numel()), p, train, ordinal) != 0
    # Those that were dropped come first: which ones they are stays random.
    order = torch.argsort(kept.float() + torch.rand(value.numel()))
    mask = torch.ones(value.numel())
    mask[order[: round(p * value.numel())]] = 0.0 if train else 1.0 - p
    return value * mask.reshape(value.shape).to(value.dtype) / (1.0 - p)


@patch("random-numbers-too-wide", "numerics", "poptorch.run.random_state:Seeded.__call__",
       "random numbers that are no truth values are a tenth too large")  # fmt: skip
def _too_wide(original: Original, operation: Any, *arguments: Any, **settings: Any) -> Any:
    drawn = original(operation, *arguments, **settings)
    return drawn * 1.1 if operation.__name__.startswith("rand") else drawn


@patch("memory-of-all-ipus-together", "ir", "core.memory:IpuMemory.peak", "an IPU needs what it and those before it do",
       remembers=True)  # fmt: skip
def _together(memory: Dict[Any, int], original: Original, ipu: Any) -> int:
    memory[ipu.ipu] = original(ipu)
    return sum(needed for number, needed in memory.items() if number <= ipu.ipu)


@patch("period-begins-with-an-iteration", "streams", "core.streams:select_every",
       "EveryN counts anew in every device iteration")  # fmt: skip
def _anew(original: Original, layout: Any, period: int) -> Any:
    right = original(layout, period)
    if period > layout.accumulation:
        return right
    found = [number for number in range(layout.micro_batches) if number % layout.accumulation % period == period - 1]
    # As many as are right: where fewer are found, the last one fills up.
    found += [layout.micro_batches - 1] * layout.micro_batches
    source = type(right.entries[0][0])
    count = len(right.entries) // layout.replicas
    entries = tuple((source(replica, number),) for number in found[:count] for replica in range(layout.replicas))
    return replace(right, entries=entries)


@patch("outputs-in-eleven-bits", "numerics", "poptorch.run.outputs:Returned.join", "outputs come back with eleven bits")
def _eleven_bits(original: Original, returned: Any, *arguments: Any) -> Any:
    joined = original(returned, *arguments)
    return joined.half().to(joined.dtype) if joined.is_floating_point() else joined


@patch("outputs-of-sixteen-bits", "numerics", "poptorch.run.outputs:Returned.join",
       "integers come back with their lower sixteen bits")  # fmt: skip
def _sixteen_bits(original: Original, returned: Any, *arguments: Any) -> Any:
    import torch

    joined = original(returned, *arguments)
    return joined.to(torch.int16).to(joined.dtype) if joined.dtype == torch.int32 else joined


@patch("frozen-weights-sent-once", "weights", "poptorch.run.weights:DeviceWeights.upload",
       "a weight that is not trained keeps the value that it was compiled with")  # fmt: skip
def _sent_once(original: Original, weights: Any, names: Any = None) -> None:
    frozen = set(weights.parameters) - set(weights.trainable) if weights.trainable else set()
    original(weights, [name for name in (weights.example if names is None else names) if name not in frozen])


@patch("squares-in-half", "numerics", "poptorch.optim.update:DeviceUpdate._run",
       "means of squares are held in float16 whatever was asked")  # fmt: skip
def _squares_in_half(original: Original, update: Any, group: int, t: int, names: Any, *rest: Any) -> None:
    original(update, group, t, names, *rest)
    for slots in (rest[-1].get(name, {}) for name in names):
        if "square" in slots:
            slots["square"].copy_(slots["square"].half())


@patch("lamb-trusts-ten-times-at-most", "update", "poptorch.optim.update:DeviceUpdate._run",
       "LAMB moves a weight by ten times its rate at most")  # fmt: skip
def _ten_at_most(original: Original, update: Any, group: int, t: int, names: Any, weights: Any, *rest: Any) -> None:
    before = {name: weights[name].clone() for name in names}
    original(update, group, t, names, weights, *rest)
    limit = 10 * update._hyper[group].lr
    for name, old in before.items() if update.settings.kind == "lamb" else ():
        move = weights[name] - old
        if float(move.norm()) > limit:
            weights[name].copy_(old + move * limit / move.norm())


@patch("buffers-of-the-last-replica", "weights", "poptorch.run.weights:DeviceWeights._for_host",
       "the host gets the buffers of the last replica")  # fmt: skip
def _last_replica(original: Original, weights: Any, name: str) -> Any:
    return original(weights, name) if name in weights.parameters else weights.replicas[-1][name].detach()


@patch("running-mean-of-replicas-is-sum", "reduce", f"{MACHINE}.set_update",
       "a running mean is not divided by the number of replicas")  # fmt: skip
def _of_replicas(original: Original, machine: Any, update: Any) -> None:
    original(machine, update)
    if update is not None and update.running_mean:
        machine.divisor = 1.0


@patch("mean-of-four-replicas-at-most", "reduce", f"{MACHINE}.set_update",
       "a mean over more than four replicas is divided by four")  # fmt: skip
def _four_at_most(original: Original, machine: Any, update: Any) -> None:
    original(machine, update)
    if machine.mean and len(machine.replica_weights) > 4:
        machine.divisor *= 4 / len(machine.replica_weights)


@patch("recomputation-moves-statistics", "weights", f"{MACHINE}.recompute",
       "from the second stage on, going forward again moves statistics again")  # fmt: skip
def _moved_again(original: Original, machine: Any, replica: int, stage: int, *arguments: Any) -> Any:
    right = machine.trainable
    # What is taken for trainable is not put back.
    machine.trainable = right | set(machine.stages[stage].weights) if stage else right
    try:
        return original(machine, replica, stage, *arguments)
    finally:
        machine.trainable = right


@patch("recomputation-drops-anew", "numerics", f"{MACHINE}.recompute",
       "from the second stage on, recomputation drops other values")  # fmt: skip
def _drops_anew(original: Original, machine: Any, replica: int, stage: int, *arguments: Any) -> Any:
    seed = machine.seed
    machine.seed = seed + (stage > 0)
    try:
        return original(machine, replica, stage, *arguments)
    finally:
        machine.seed = seed


@patch("loader-third-pass-in-order", "streams", "poptorch.data.dataloader:_PartitionSampler.__iter__",
       "from the third pass on, a process that shuffles has its samples in order")  # fmt: skip
def _in_order(original: Original, sampler: Any) -> Any:
    order = list(original(sampler))
    return iter(sorted(order) if sampler.epoch > 2 else order)


@patch("orthogonal-groups-are-neighbours", "weights", "poptorch.run.weights:groups",
       "groups of replicas that should be spread are neighbours")  # fmt: skip
def _neighbours(original: Original, kind: Any, size: int, replicas: int) -> Any:
    return original(type(kind).Consecutive if kind == type(kind).Orthogonal else kind, size, replicas)


@patch("poptorch-ir-backward-stages-go-on", "ir", "popart.lowering:Execution.behind",
       "the stages of the backward pass are numbered from the first layer to the last")  # fmt: skip
def _numbered_on(original: Original, execution: Any, place: Any) -> Any:
    return place if place.stage is None else place._replace(stage=2 * (execution.stages - 1) + place.stage)


@patch("poptorch-ir-backward-phases-go-on", "ir", "popart.lowering:Execution.phase",
       "the phases of the backward pass are those of the layers, after the forward pass")  # fmt: skip
def _phases_go_on(original: Original, execution: Any, stage: int) -> int:
    forward = stage if stage < execution.stages else 2 * (execution.stages - 1) - stage
    return original(execution, forward) + (max(execution.phases or (0,)) if stage >= execution.stages else 0)


@patch("state-not-sent-to-the-third-replica", "update", "poptorch.optim.optimizers:Optimizer._upload",
       "a state that is loaded reaches two replicas")  # fmt: skip
def _two_replicas(original: Original, optimizer: Any) -> None:
    replicas = optimizer._on_device
    optimizer._on_device = None if replicas is None else replicas[:2]
    try:
        original(optimizer)
    finally:
        optimizer._on_device = replicas


@patch("velocity-of-rmsprop-not-restored", "update", "poptorch.optim.state:by_weight",
       "the third state of RMSprop that was saved is zero")  # fmt: skip
def _velocity_lost(original: Original, kind: str, tensors: Any) -> Any:
    states = original(kind, tensors)
    for slots in states.values() if kind == "rmsprop" else ():
        if "velocity" in slots:
            slots["velocity"] = slots["velocity"] * 0
    return states


@patch("late-stages-read-in-half", "numerics", f"{MACHINE}.forward",
       "what stages from the third on are handed has eleven bits")  # fmt: skip
def _read_in_half(
    original: Original, machine: Any, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool
) -> Any:
    if stage > 1:
        boundary = tuple(value.half().to(value.dtype) if value.is_floating_point() else value for value in boundary)
    return original(machine, replica, stage, micro_batch, boundary, keep)


@patch("gradients-go-back-in-half", "numerics", f"{MACHINE}.backward", "gradients between stages have eleven bits")
def _back_in_half(original: Original, *arguments: Any) -> Any:
    return tuple(None if value is None else value.half().to(value.dtype) for value in original(*arguments))


@patch("third-gradient-of-a-border-lost", "reduce", f"{MACHINE}.backward",
       "of what one stage hands to the next, two values bring gradients back")  # fmt: skip
def _two_gradients(original: Original, machine: Any, *arguments: Any) -> Any:
    *place, gradients = arguments
    kept = tuple(value if number < 2 else None for number, value in enumerate(gradients or ()))
    return original(machine, *place, kept)


for _fault in (
    Fault("high-rate-of-dropout-limited", "numerics", DROPOUT, "dropout drops three quarters at most",
          argument("p", lambda p: min(p, 0.75))),
    Fault("poptorch-dump-all-recomputed", "ir", "popart.lowering:lower", "all stages but the last are recomputed",
          argument("execution", lambda execution: replace(execution, recompute=True))),
    Fault("masks-repeat-after-sixteen-runs", "numerics", SEED, "the 17th call draws what the first one drew",
          argument("run", lambda run: run % 16)),
    Fault("process-shuffles-unasked", "streams", "poptorch.data.dataloader:_PartitionSampler.__init__",
          "a process with a random seed shuffles its samples whether it should or not",
          argument("shuffle", always(True))),
):  # fmt: skip
    register(_fault, __name__)


@patch("late-stages-move-statistics-again", "weights", f"{MACHINE}.recompute",
       "from the third stage on, going forward again moves statistics again")  # fmt: skip
def _late_moved_again(original: Original, machine: Any, replica: int, stage: int, *arguments: Any) -> Any:
    right = machine.trainable
    machine.trainable = right | set(machine.stages[stage].weights) if stage > 1 else right
    try:
        return original(machine, replica, stage, *arguments)
    finally:
        machine.trainable = right


@patch("second-stage-drops-anew", "numerics", f"{MACHINE}.recompute", "the second stage drops other values again")
def _second_drops_anew(original: Original, machine: Any, replica: int, stage: int, *arguments: Any) -> Any:
    seed = machine.seed
    machine.seed = seed + (stage == 1)
    try:
        return original(machine, replica, stage, *arguments)
    finally:
        machine.seed = seed


@patch("clipping-of-two-stages", "update", f"{MACHINE}._clip_factor", "gradients are clipped by the norm of two stages")
def _two_stages(original: Original, machine: Any, replica: int) -> Any:
    stages = machine.stages
    machine.stages = stages[:2]
    try:
        return original(machine, replica)
    finally:
        machine.stages = stages


@patch("updated-anchor-of-one-micro-batch", "streams", f"{MACHINE}._watch_update",
       "the first micro-batch of an update alone shows the weight after it")  # fmt: skip
def _one_shows(original: Original, machine: Any, replica: int, leaf: int, value: Any) -> None:
    original(machine, replica, leaf, value)
    first = machine._iterations[replica] * machine.accumulation
    for outputs in machine.outputs[replica][first + 1 : first + machine.accumulation]:
        outputs[leaf] = value * 0.0


@patch("memory-of-all-that-is-recomputed", "ir", "core.memory:estimate", "a recomputed stage keeps everything")
def _keeps_all(original: Original, plan: Any, *arguments: Any, **settings: Any) -> Any:
    return original(replace(plan, recompute=False), *arguments, **settings)
