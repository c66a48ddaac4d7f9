"""Where a value of a run stands, in words: its step, device iteration, accumulation step, replica and stage."""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Optional, Tuple

import numpy as np

from ipu_conformance.nets import Net
from ipu_conformance.run import RunConfig

Index = Tuple[int, ...]
Where = Callable[[Index], str]
"""The name of the value at an index of an array."""

WORDS = {"losses": "loss", "outputs": "output"}


def of_step(field: str, step: int, config: RunConfig, shape: Tuple[int, ...]) -> Optional[Where]:
    """Where the values of a step's losses or outputs stand; None for an array that the configuration does not imply.

    In every layout the values stand in memory in the order of the feed: [device iteration, accumulation, replica].
    """
    entries, size = _entries(config), int(np.prod(shape))
    if not size or size % entries:
        return None

    def where(index: Index) -> str:
        flat = int(np.ravel_multi_index(index, shape)) if shape else 0
        entry, inner = divmod(flat, size // entries)
        turn, replica = divmod(entry, config.replicas)
        words = [f"step {step}", *_turn(turn, config)]
        if config.replicas > 1:
            words.append(f"replica {replica}")
        updates = _updates(step, turn, config)
        if field == "outputs" and size // entries % config.micro_batch == 0:
            sample, value = divmod(inner, size // entries // config.micro_batch)
            words += [f"sample {sample}", f"value {value}"]
        summed = f"sum of {field}" if config.output_mode == "sum" else WORDS[field]
        return f"the {summed} of {', '.join(words)}{f' ({updates})' if updates else ''}"

    return where


def of_weight(name: str, net: Optional[Net], config: Optional[RunConfig]) -> str:
    """A weight or a statistic with the stages that hold it, if the net is cut."""
    if net is None or config is None or config.number_of_stages == 1:
        return name
    owner = name.rpartition(".")[0]
    placed = [stage for layer, stage in zip(net.layers, config.stages) if name in layer.weights or layer.name == owner]
    stages = sorted(set(placed))
    if not stages:
        return name
    return f"{name} of stage{'' if len(stages) == 1 else 's'} {' and '.join(map(str, stages))}"


def named(record: Any, field: str, step: int, values: Any) -> Optional[Where]:
    """Where the values of one step of a record's field stand; None if the record does not say how it was made."""
    config = getattr(record, "config", None)
    if field not in WORDS or not isinstance(config, RunConfig):
        return None
    return of_step(field, step, config, np.shape(values))


def _entries(config: RunConfig) -> int:
    turns = config.device_iterations * config.gradient_accumulation
    chosen: Mapping[str, int] = {
        "all": turns,
        "every_n": turns // config.output_period,
        "final": 1,
        "sum": config.device_iterations if config.output_layout == "tensorflow" else 1,
    }
    return chosen[config.output_mode] * config.replicas


def _turn(number: int, config: RunConfig) -> List[str]:
    """The device iteration and the accumulation step of an entry, those of which there are several."""
    if config.output_mode == "sum":
        return [f"device iteration {number}"] if config.output_layout == "tensorflow" else []
    iteration, accumulation = divmod(_micro_batch(number, config), config.gradient_accumulation)
    words = [f"device iteration {iteration}"] if config.device_iterations > 1 else []
    return words + ([f"accumulation step {accumulation}"] if config.gradient_accumulation > 1 else [])


def _micro_batch(number: int, config: RunConfig) -> int:
    """The micro-batch of a replica that an entry of a step shows."""
    if config.output_mode == "final":
        return config.device_iterations * config.gradient_accumulation - 1
    return (number + 1) * config.output_period - 1


def _updates(step: int, number: int, config: RunConfig) -> str:
    """Which updates an entry has seen; empty where it is not of one device iteration, or updates do not wait for it."""
    of_many = config.output_mode == "sum" and config.output_layout != "tensorflow" and config.device_iterations > 1
    if not config.training or of_many or config.update not in ("device_iteration", "run"):
        return ""
    if config.update == "run":
        count = step
    elif config.output_mode == "sum":
        count = step * config.device_iterations + (number if config.output_layout == "tensorflow" else 0)
    else:
        count = step * config.device_iterations + _micro_batch(number, config) // config.gradient_accumulation
    return {0: "before the first update", 1: "after the first update"}.get(count, f"after {count} updates")
