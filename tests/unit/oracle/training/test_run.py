"""Configurations are checked when they are made and have short, stable ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.run import OPTIMIZERS, SCHEDULES, RunConfig, RunError, learning_rate, optimizer
from tests.unit.examples import at_most
from tests.unit.oracle.training.strategies import configs

IDS = {
    "D1-G1-R1-S1-sgd": RunConfig(),
    "D2-G3-R5-S4-grouped-adam": RunConfig(
        device_iterations=2, gradient_accumulation=3, replicas=5, stages=(0, 1, 2, 2, 3), optimizer=optimizer("adam")
    ),
    "D1-G1-R1-S2-interleaved-sgd,momentum=0.9-recompute": RunConfig(
        stages=(0, 1), schedule="interleaved", recompute=True, optimizer=optimizer("sgd", momentum=0.9)
    ),
    "D3-G1-R1-S1-infer-out_every_n-3": RunConfig(
        device_iterations=3, training=False, output_mode="every_n", output_period=3
    ),
    "D1-G1-R1-S1-sgd-B4-N7-step,base=0.5-sum-replica_sum-L1024-clip0.5-float16-partials_float16"
    "-sr-paddle-seed3": RunConfig(
        micro_batch=4,
        steps=7,
        learning_rate=learning_rate("step", base=0.5),
        accumulation_reduction="sum",
        replica_reduction="sum",
        loss_scale=1024.0,
        clip_norm=0.5,
        dtype="float16",
        partials="float16",
        stochastic_rounding=True,
        output_layout="paddle",
        seed=3,
    ),
    "D1-G1-R1-S3-grouped-sgd-ipus0+1+0-rate_per_update-update_per_run": RunConfig(
        stages=(0, 1, 2), devices=(0, 1, 0), rate_changes="update", update="run"
    ),
}


@pytest.mark.parametrize("expected", IDS)
def test_id_names_what_differs_from_the_default(expected: str) -> None:
    """An id holds the four factors, the optimizer, and a word for each field that is not at its default."""
    assert str(IDS[expected]) == expected


REFUSED: Dict[str, Dict[str, Any]] = {
    "replicas is 0: give a whole number of at least 1.": {"replicas": 0},
    "steps is True: give a whole number of at least 1.": {"steps": True},
    "micro_batch is 2.0: give a whole number of at least 1.": {"micro_batch": 2.0},
    "schedule is 'zigzag': choose one of grouped, interleaved, sequential.": {"schedule": "zigzag"},
    "stages are (1, 2): number them from 0 upwards, without gaps, in the layers' order.": {"stages": (1, 2)},
    "stages are (0, 2): number them from 0 upwards, without gaps, in the layers' order.": {"stages": (0, 2)},
    "stages are (0, 1, 0): number them from 0 upwards, without gaps, in the layers' order.": {"stages": (0, 1, 0)},
    "devices are (0,): give an IPU number for each of the 2 stages, or none.": {"stages": (0, 1), "devices": (0,)},
    "loss_scale is 0.0: give a finite number above 0.": {"loss_scale": 0.0},
    "loss_scale is inf: give a finite number above 0.": {"loss_scale": float("inf")},
    "clip_norm is -1.0: give a number above 0, or None for no clipping.": {"clip_norm": -1.0},
    "gradient_accumulation is 2: inference needs 1.": {"gradient_accumulation": 2, "training": False},
    "output_period is 2: it belongs to output_mode every_n, leave it at 1.": {"output_period": 2},
    "output_period is 4: it must divide the 6 micro-batches that a replica sees in a step.": {
        "device_iterations": 6,
        "output_mode": "every_n",
        "output_period": 4,
    },
    "output_mode is 'final': paddle returns all.": {"output_mode": "final", "output_layout": "paddle"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_refuses_with_one_sentence(message: str) -> None:
    """A field that cannot be used is named, with what was given and what is allowed."""
    with pytest.raises(RunError) as failure:
        RunConfig(**REFUSED[message])

    assert str(failure.value) == message


def test_refuses_unknown_rules() -> None:
    """An unknown optimizer, schedule or setting is refused with the names that exist."""
    with pytest.raises(RunError, match=r"optimizer 'sdg' is unknown: choose one of sgd, adam, "):
        optimizer("sdg")
    with pytest.raises(RunError, match=r"learning-rate schedule 'ramp' is unknown: choose one of constant, step, "):
        learning_rate("ramp")
    with pytest.raises(RunError, match=r"adam has no setting 'momentum': its settings are beta1, "):
        optimizer("adam", momentum=0.9)


def test_rules_hold_all_their_settings() -> None:
    """A rule holds the defaults of what was not given, so that a driver passes every setting on."""
    for name, defaults in OPTIMIZERS.items():
        assert dict(optimizer(name).settings) == defaults
    for name, defaults in SCHEDULES.items():
        assert dict(learning_rate(name).settings) == defaults
    assert optimizer("adam", beta1=0.5)["beta1"] == 0.5


CHANGES: List[Dict[str, Any]] = [
    {"replicas": 4},
    {"micro_batch": 5},
    {"steps": 9},
    {"recompute": True},
    {"rate_changes": "update"},
    {"learning_rate": learning_rate("constant", base=0.7)},
    {"accumulation_reduction": "sum"},
    {"replica_reduction": "sum"},
    {"update": "run"},
    {"loss_scale": 8.0},
    {"clip_norm": 3.0},
    {"dtype": "float16"},
    {"partials": "float16"},
    {"stochastic_rounding": True},
    {"seed": 5},
    {"unbiased_statistics": False},
]


@at_most(100)
@given(configs(), st.sampled_from(CHANGES))
def test_a_change_shows_in_the_id(config: RunConfig, change: Dict[str, Any]) -> None:
    """Two configurations that differ in a field have two ids."""
    changed = replace(config, **change)

    assert (str(config) == str(changed)) == (config == changed)


@at_most(50)
@given(configs())
def test_configurations_can_be_keys(config: RunConfig) -> None:
    """Configurations are values: equal ones hash alike."""
    assert hash(config) == hash(replace(config))
    assert config.combined_batch == config.micro_batches * config.micro_batch
