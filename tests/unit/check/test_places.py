"""A difference names the step, device iteration, accumulation step, replica and stage at which it stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.check.places import of_step
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.oracle.training.train import train
from ipu_conformance.run import RunConfig, RunRecord
from tests.unit.check.conftest import Reasoned, sentence

CONFIG = RunConfig(device_iterations=2, gradient_accumulation=5, replicas=3, steps=2)
SEEN = " (after the first update)"
LAYOUTS = {
    layout: replace(CONFIG, output_layout=layout, unbiased_statistics=layout != "paddle")
    for layout in ("poptorch", "paddle", "tensorflow")
}


def recorded(config: RunConfig) -> RunRecord:
    """A run of a small net."""
    return train(nets.mlp(), distinct_micro_batches(nets.mlp(), config), config)


def changed(record: RunRecord, field: str, step: int, flat: int) -> RunRecord:
    """The same run with another value at one place of a step, counted in the order of memory."""
    arrays = [np.array(each) for each in getattr(record, field)]
    arrays[step].reshape(-1)[flat] += 1.0
    changes: Any = {field: tuple(arrays)}
    return replace(record, **changes)


def subject(config: RunConfig, field: str, step: int, flat: int) -> str:
    """How the sentence begins that finds the value at one place of a step."""
    run = recorded(config)
    message = sentence(
        check.runs_identical, actual=changed(run, field, step, flat), expected=run, fields=[field], net=nets.mlp()
    )
    return message.partition(" differs")[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("iteration", "accumulation", "replica"), [(0, 0, 1), (1, 4, 2), (1, 0, 0)])
def test_a_loss_is_named_by_its_place(layout: str, iteration: int, accumulation: int, replica: int) -> None:
    """In every layout a loss belongs to a device iteration, an accumulation step and a replica."""
    flat = (iteration * 5 + accumulation) * 3 + replica

    assert subject(LAYOUTS[layout], "losses", 1, flat) == (
        f"the loss of step 1, device iteration {iteration}, accumulation step {accumulation}, replica {replica} "
        f"(after {2 + iteration} updates)"
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_output_is_named_by_its_sample_too(layout: str) -> None:
    """The outputs of a micro-batch are those of its samples."""
    flat = ((1 * 5 + 3) * 3 + 2) * 2 * 5 + 1 * 5 + 4

    assert subject(LAYOUTS[layout], "outputs", 0, flat) == (
        "the output of step 0, device iteration 1, accumulation step 3, replica 2, sample 1, value 4 "
        "(after the first update)"
    )


@pytest.mark.parametrize(
    ("changes", "flat", "words"),
    [
        (
            {"output_mode": "every_n", "output_period": 5},
            4,
            f"device iteration 1, accumulation step 4, replica 1{SEEN}",
        ),
        (
            {"output_mode": "every_n", "output_period": 2},
            7,
            f"device iteration 1, accumulation step 0, replica 1{SEEN}",
        ),
        ({"output_mode": "final"}, 2, f"device iteration 1, accumulation step 4, replica 2{SEEN}"),
        ({"output_mode": "sum"}, 1, "replica 1"),
        ({"output_mode": "sum", "output_layout": "tensorflow"}, 4, f"device iteration 1, replica 1{SEEN}"),
    ],
)
def test_an_entry_of_a_mode_is_the_micro_batch_that_it_shows(changes: dict, flat: int, words: str) -> None:
    """Of every second micro-batch the third entry is the sixth micro-batch, and so on."""
    word = "sum of losses" if changes["output_mode"] == "sum" else "loss"

    assert subject(replace(CONFIG, **changes), "losses", 0, flat) == f"the {word} of step 0, {words}"


def test_what_there_is_one_of_is_not_named() -> None:
    """One replica, one device iteration and no accumulation leave the step."""
    assert subject(RunConfig(), "losses", 0, 0) == "the loss of step 0 (before the first update)"
    assert subject(RunConfig(gradient_accumulation=3, steps=2), "losses", 1, 2) == (
        f"the loss of step 1, accumulation step 2{SEEN}"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"update": "run"}, " (before the first update)"),
        ({"update": "micro_batch"}, ""),
    ],
)
def test_updates_are_counted_where_a_micro_batch_waits_for_them(changes: dict, words: str) -> None:
    """With one update a step all its micro-batches come before; with one a micro-batch no count is the same for all."""
    config = replace(RunConfig(device_iterations=4, steps=2), **changes)

    assert of_step("losses", 0, config, (4,))((2,)) == f"the loss of step 0, device iteration 2{words}"


def test_inference_updates_nothing() -> None:
    """So it has no count of updates."""
    config = RunConfig(device_iterations=4, steps=2).inference()

    assert of_step("losses", 1, config, (4,))((2,)) == "the loss of step 1, device iteration 2"


@pytest.mark.parametrize(("name", "stage"), [("fc1.weight", 0), ("fc3.bias", 2), ("fc4.weight", 2)])
def test_a_weight_is_named_with_its_stage(name: str, stage: int) -> None:
    """In a net that is cut, the stage that holds a weight is part of its name."""
    config = replace(CONFIG, stages=nets.mlp().cut(3))
    run = recorded(config)
    weights = {word: value + (word == name) for word, value in run.weights.items()}
    message = sentence(
        check.runs_identical, actual=replace(run, weights=weights), expected=run, fields=["weights"], net=nets.mlp()
    )

    assert message.startswith(f"{name} of stage {stage} differs at [")


def test_a_weight_of_two_stages_has_both() -> None:
    """A weight that layers of two stages share is in both."""
    net = nets.tied_weights()
    config = replace(CONFIG, stages=net.cut(4))
    run = train(net, distinct_micro_batches(net, config), config)
    weights = {**run.weights, "tied.weight": run.weights["tied.weight"] + 1}

    message = sentence(check.runs_identical, actual=replace(run, weights=weights), expected=run, net=net)

    assert message.startswith("tied.weight of stages 1 and 2 differs at [0, 0]")


def test_places_are_named_within_a_tolerance_too() -> None:
    """A difference beyond a tolerance and a NaN are placed in the same words."""
    run = recorded(CONFIG)
    loose = Reasoned(0.5)
    other = changed(run, "losses", 1, 29)
    where = "the loss of step 1, device iteration 1, accumulation step 4, replica 2 (after 3 updates)"

    class Tolerance:
        losses = (loose, loose)

    message = sentence(
        check.runs_equivalent, actual=other, expected=run, tolerance=Tolerance, fields=["losses"], net=nets.mlp()
    )
    assert message.startswith(f"{where} differs: actual ")
    other.losses[1].reshape(-1)[29] = np.nan
    message = sentence(check.runs_equivalent, actual=other, expected=run, tolerance=Tolerance, fields=["losses"])
    assert message.startswith(f"{where} is nan where ")


def test_a_shape_that_was_not_asked_for_is_no_place() -> None:
    """An array with another number of values than the configuration gives is placed by its index."""
    run = replace(recorded(CONFIG), losses=(np.zeros(7), np.zeros(7)))
    other = replace(run, losses=(np.zeros(7), np.eye(7)[3]))

    assert sentence(check.runs_identical, actual=other, expected=run, fields=["losses"]).startswith(
        "losses of step 1 differs at [3]"
    )


def test_arrays_that_must_differ_are_farther_apart_than_rounding() -> None:
    """Arrays that are equal within the tolerance fail, those that differ beyond it somewhere pass."""
    check.apart(actual=np.array([1.0, 2.0]), other=np.array([1.0, 3.0]), tolerance=Reasoned(0.5), what="the mean")

    assert sentence(
        check.apart, actual=np.array([1.0, 2.25]), other=np.array([1.0, 2.0]), tolerance=Reasoned(0.5), what="the mean"
    ) == (
        "the mean is the same twice where it must differ: largest difference 0.25, of which rounding explains 0.5 "
        "(half a step)."
    )
