"""A small net learns digits on the device as fast and as well as the recorded reference runs do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from ipu_conformance.nets import Data, generator
from ipu_conformance.oracle import baseline, workloads
from ipu_conformance.oracle.convergence import band, judge
from ipu_conformance.oracle.train import infer
from ipu_conformance.run import RunConfig, learning_rate, optimiser

from .specified import Runs, shared_runs  # noqa: F401 (a fixture)

WORKLOAD = workloads.WORKLOADS["oracle-mlp"]
SEED = 100
"""A seed of its own; the baseline's are 0 to 19."""

UPDATE = RunConfig(
    device_iterations=WORKLOAD.train // WORKLOAD.batch,
    micro_batch=WORKLOAD.batch,
    steps=WORKLOAD.epochs,
    optimiser=optimiser("sgd", momentum=WORKLOAD.momentum, rate_in_velocity=True),
    learning_rate=learning_rate(base=WORKLOAD.rate),
    accumulation_reduction="mean",
    replica_reduction="sum",
    output_layout="tensorflow",
)
# Replicas are added up, which the rate makes a mean of.
SHARED = replace(
    UPDATE, micro_batch=WORKLOAD.batch // 4, replicas=4, learning_rate=learning_rate(base=WORKLOAD.rate / 4)
)
WAYS: Dict[str, RunConfig] = {"single": UPDATE, "replicated": SHARED}
"""However an update's samples are shared out, they are those of one batch of the workload."""


def _accuracies(runs: Runs, config: RunConfig) -> List[float]:
    """The test accuracy after each epoch, which is one fit."""
    from ipu_conformance.data import load

    net, digits = WORKLOAD.make_net(), load(workloads.DATA_SET, train=WORKLOAD.train, test=WORKLOAD.test)
    inputs, tests = (
        images.reshape(-1, workloads.SIDE, 2, workloads.SIDE, 2).mean(axis=(2, 4)).reshape(-1, *net.input_shape) / 255.0
        for images in (digits.train.images, digits.test.images)
    )
    labels, answers = (split.labels.astype(np.int64) for split in (digits.train, digits.test))
    random = generator(config.seed, "order", WORKLOAD.name)
    orders = np.stack([random.permutation(WORKLOAD.train)[: config.combined_batch] for _ in range(config.steps)])
    record = runs.driver.train(net, config, Data(inputs[orders], labels[orders]))
    asked, questions = RunConfig(micro_batch=len(answers), training=False), Data(tests[None], answers[None])
    found = [infer(net, questions, asked, weights=held).outputs for held in record.weights_by_step or ()]
    return [float(np.mean(outputs[0].argmax(axis=-1) == answers)) for outputs in found if outputs]


@pytest.mark.level("premerge")
@pytest.mark.parametrize("config", [pytest.param(config, id=word) for word, config in WAYS.items()])
def test_digits_are_learned_as_by_the_reference(runs: Runs, config: Any) -> None:
    """The accuracy after every epoch is neither lower nor higher than the spread of the reference runs allows."""
    recorded = baseline.load(Path("oracle-mlp"))

    verdict = judge(
        band(recorded.values),
        [_accuracies(runs, replace(config, seed=SEED))],
        metric=recorded.metric,
    )

    assert verdict.passed, verdict.reason
