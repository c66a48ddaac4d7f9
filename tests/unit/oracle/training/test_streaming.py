"""Updates inside a pipeline: which weights each micro-batch meets on its way forth and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List

import numpy as np
import pytest

from ipu_conformance import nets
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.oracle.training.train import train
from ipu_conformance.run import RunConfig, RunError, RunRecord, learning_rate, optimizer

CONFIG = RunConfig(
    device_iterations=7,
    replicas=2,
    micro_batch=3,
    steps=2,
    update="micro_batch",
    learning_rate=learning_rate(base=0.25),
)
Version = Dict[str, np.ndarray]


def run(config: RunConfig, name: str = "mlp") -> RunRecord:
    net = nets.NETS[name]()
    return train(net, distinct_micro_batches(net, config), config)


def gradients(x: np.ndarray, labels: np.ndarray, forth: Version, back: Version) -> Version:
    """The gradients of ``mlp`` when it goes forward with some weights and comes back through others."""
    values, stash = x, []
    for number in range(1, 5):
        stash.append(values)
        values = values @ forth[f"fc{number}.weight"].T + forth[f"fc{number}.bias"]
        values = np.maximum(values, 0) if number == 2 else values if number == 4 else np.tanh(values)
    shares = np.exp(values) / np.exp(values).sum(axis=1, keepdims=True)
    cotangent = (shares - np.eye(5)[labels]) / len(x)
    found = {}
    for number in range(4, 0, -1):
        found[f"fc{number}.weight"], found[f"fc{number}.bias"] = cotangent.T @ stash[number - 1], cotangent.sum(axis=0)
        cotangent = cotangent @ back[f"fc{number}.weight"]
        came = stash[number - 1]
        cotangent = cotangent * ((came > 0) if number == 3 else 1 - came**2)
    return found


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_a_micro_batch_meets_late_weights_forth_and_all_updates_back(stages: int) -> None:
    """Micro-batch m misses the last 2(S-1-s) updates of stage s when it goes forth, and none when it comes back."""
    net, config = nets.mlp(), replace(CONFIG, stages=nets.mlp().cut(stages), steps=1)
    data, size = distinct_micro_batches(net, config), config.micro_batch
    stage_of = {name: stage for layer, stage in zip(net.layers, config.stages) for name in layer.weights}
    versions: List[Version] = [net.initial_weights(config.seed)]
    for turn in range(config.device_iterations):
        forth = {name: versions[max(0, turn - 2 * (stages - 1 - stage))][name] for name, stage in stage_of.items()}
        total = {name: np.zeros_like(value) for name, value in versions[0].items()}
        for replica in range(config.replicas):
            first = (turn * config.replicas + replica) * size
            part = slice(first, first + size)
            for name, found in gradients(data.inputs[0, part], data.labels[0, part], forth, versions[turn]).items():
                total[name] += found / config.replicas
        versions.append({name: value - 0.25 * total[name] for name, value in versions[turn].items()})

    record = run(config)

    # Both are float64, with values of order one: what each update rounds is a sum of at most 10 terms in 4 layers.
    allowed = config.device_iterations * 4 * 10 * float(np.finfo(np.float64).eps)
    for name, value in (record.weights or {}).items():
        np.testing.assert_allclose(value, versions[-1][name], atol=allowed, rtol=0)
    assert record.updates == config.device_iterations


def test_one_stage_has_nothing_on_its_way() -> None:
    """Without a pipeline an update a micro-batch is an update a device iteration, to the bit."""
    stateful = replace(CONFIG, optimizer=optimizer("adam"), loss_scale=64.0)
    one, other = run(stateful, "bn_convnet"), run(replace(stateful, update="device_iteration"), "bn_convnet")

    for field in ("weights", "statistics"):
        for name, value in getattr(one, field).items():
            np.testing.assert_array_equal(value, getattr(other, field)[name])
    for left, right in zip(one.losses, other.losses):
        np.testing.assert_array_equal(left, right)


def test_a_pipeline_that_is_not_emptied_learns_something_else() -> None:
    """Late weights matter: the run differs from one whose pipeline is emptied before every update."""
    config = replace(CONFIG, stages=nets.mlp().cut(3))
    one, other = run(config).weights or {}, run(replace(config, update="device_iteration")).weights or {}

    assert all(np.any(one[name] != other[name]) for name in one)


def test_what_cannot_be_updated_inside_a_pipeline_is_refused() -> None:
    """Accumulation, a norm of all gradients and a weight of two stages are refused with a sentence each."""
    with pytest.raises(RunError, match="an update a micro-batch needs 1"):
        replace(CONFIG, gradient_accumulation=2)
    with pytest.raises(RunError, match="never see all gradients at once"):
        replace(CONFIG, clip_norm=1.0)
    with pytest.raises(RunError, match="a weight in two stages"):
        run(replace(CONFIG, stages=nets.tied_weights().cut(4)), "tied_weights")
