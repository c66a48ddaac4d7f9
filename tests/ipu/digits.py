"""The digits that a small net learns on every front end, and how well it is to learn them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import numpy as np

from ipu_conformance.nets import Data, generator
from ipu_conformance.oracle.convergence import baseline, workloads
from ipu_conformance.oracle.convergence.band import Verdict, band, judge
from ipu_conformance.oracle.training.train import infer
from ipu_conformance.run import RunConfig

WORKLOAD = workloads.WORKLOADS["oracle-mlp"]
SEED = 100
"""A seed of its own; the baseline's are 0 to 19."""


def accuracies(driver: Any, config: RunConfig) -> List[float]:
    """The test accuracy after each epoch, which is one step of the driver."""
    from ipu_conformance.data import load

    net, digits = WORKLOAD.make_net(), load(workloads.DATA_SET, train=WORKLOAD.train, test=WORKLOAD.test)
    inputs, tests = (
        images.reshape(-1, workloads.SIDE, 2, workloads.SIDE, 2).mean(axis=(2, 4)).reshape(-1, *net.input_shape) / 255.0
        for images in (digits.train.images, digits.test.images)
    )
    labels, answers = (split.labels.astype(np.int64) for split in (digits.train, digits.test))
    random = generator(config.seed, "order", WORKLOAD.name)
    orders = np.stack([random.permutation(WORKLOAD.train)[: config.combined_batch] for _ in range(config.steps)])
    record = driver.train(net, config, Data(inputs[orders], labels[orders]))
    asked, questions = RunConfig(micro_batch=len(answers), training=False), Data(tests[None], answers[None])
    found = [infer(net, questions, asked, weights=held).outputs for held in record.weights_by_step or ()]
    return [float(np.mean(outputs[0].argmax(axis=-1) == answers)) for outputs in found if outputs]


def verdict(driver: Any, config: RunConfig) -> Verdict:
    """Whether the accuracy after every epoch lies where the spread of the reference runs allows."""
    recorded = baseline.load(Path("oracle-mlp"))
    return judge(band(recorded.values), [accuracies(driver, config)], metric=recorded.metric)
