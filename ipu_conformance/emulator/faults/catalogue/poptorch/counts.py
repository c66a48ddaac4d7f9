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


@patch("orthogonal-groups-are-neighbours", "weights", "poptorch.run.weights:groups",
       "groups of replicas that should be spread are neighbours")  # fmt: skip
def _neighbours(original: Original, kind: Any, size: int, replicas: int) -> Any:
    return original(type(kind).Consecutive if kind == type(kind).Orthogonal else kind, size, replicas)


@patch("poptorch-ir-backward-stages-go-on", "ir", "popart.lowering:Execution.behind",
       "the stages of the backward pass are numbered from the first layer to the last")  # fmt: skip
def _numbered_on(original: Original, execution: Any, place: Any) -> Any:
    return place if place.stage is None else place._replace(stage=2 * (execution.stages - 1) + place.stage)


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
