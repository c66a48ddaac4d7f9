"""Gradient clipping: by the norm of all gradients together, once an update, before decay."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.run import learning_rate, optimizer

from ...training import Runs, cut
from ..device import compiled, started
from .config import counted

CLIPPED = counted(2, 3, 1, clip_norm=0.25, steps=2)
RULES = {
    "sgd": optimizer("sgd"),
    "momentum": optimizer("sgd", momentum=0.5),
    "decay": optimizer("sgd", momentum=0.5, weight_decay=0.5),
    "adam": optimizer("adam", beta1=0.5, beta2=0.75, epsilon=0.125),
    "adamw": optimizer("adamw", beta1=0.5, beta2=0.75, epsilon=0.125, weight_decay=0.25),
}


@pytest.mark.parametrize("rule", RULES)
def test_gradients_are_clipped_together(runs: Runs, rule: str) -> None:
    """A norm above the limit shrinks all gradients alike, after accumulation and reduction and before decay."""
    gentle = learning_rate(base=0.0625)

    runs.compare("mlp", replace(CLIPPED, optimizer=RULES[rule], learning_rate=gentle))


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_replicas_are_clipped_after_their_reduction(runs: Runs, name: str) -> None:
    """The norm is that of the mean over replicas, for any kind of weight."""
    runs.compare(name, replace(CLIPPED, device_iterations=1, gradient_accumulation=2, replicas=3, steps=1))


@pytest.mark.parametrize("limit", [0.0625, 0.5, 1024.0])
def test_the_limit_is_the_one_given(runs: Runs, limit: float) -> None:
    """Whatever the limit, the run is the oracle's."""
    runs.compare("mlp", replace(CLIPPED, clip_norm=limit))


def test_a_limit_above_the_norm_changes_no_bit(runs: Runs) -> None:
    """Gradients below the limit are multiplied by exactly one."""
    check.runs_identical(
        actual=runs.train("mlp", replace(CLIPPED, clip_norm=1024.0)),
        expected=runs.train("mlp", replace(CLIPPED, clip_norm=None)),
    )


@pytest.mark.ipus(16)
@pytest.mark.parametrize("kind", ["pipelined", "sharded"])
@pytest.mark.parametrize(("name", "stages"), [("mlp", 2), ("mlp", 4), ("tied_weights", 3)])
def test_the_norm_spans_all_stages(runs: Runs, name: str, stages: int, kind: str) -> None:
    """A net in stages is clipped by the norm of the whole net, not of a stage."""
    runs.compare(name, cut(name, counted(2, 7, 1, clip_norm=0.25), stages, kind))


@pytest.mark.ipus(1)
@pytest.mark.parametrize("clip", ["ClipGradByValue", "ClipGradByNorm"])
def test_other_ways_to_clip_are_refused(paddle: Any, static: Any, clip: str) -> None:
    """Clipping by value or by each gradient's own norm is not implemented, and compilation says so."""
    loss = paddle.mean(paddle.tanh(static.nn.fc(static.data("x", [2, 3], "float32"), 4)))
    paddle.optimizer.SGD(0.125, grad_clip=getattr(paddle.nn, clip)(0.25)).minimize(loss)
    started(paddle)

    with pytest.raises(Exception, match=r"(?i)unimplemented"):
        compiled(paddle, [loss], size=1, training=True)


def test_clipping_makes_a_difference(runs: Runs) -> None:
    """The limit of these cases is below the norms that occur."""
    clipped, free = (runs.train("mlp", replace(CLIPPED, clip_norm=limit)).weights or {} for limit in (0.25, None))

    assert all(not np.array_equal(clipped[weight.name], free[weight.name]) for weight in nets.mlp().weights)
