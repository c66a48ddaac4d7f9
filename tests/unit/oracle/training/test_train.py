"""A training run means what a plain loop over all samples computes, whatever the pipeline."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, Dict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance import nets
from ipu_conformance.nets import NETS, Data, Net, distinct_micro_batches
from ipu_conformance.oracle.training.execution import slots
from ipu_conformance.oracle.training.train import dropout_masks, infer, train
from ipu_conformance.run import RunConfig, RunError, RunRecord, learning_rate, optimizer
from tests.unit.examples import at_most
from tests.unit.oracle.training import torch_loop
from tests.unit.oracle.training.amplification import tolerance

RATE = learning_rate("constant", base=0.125)
CONFIGS = [
    RunConfig(
        device_iterations=2,
        gradient_accumulation=3,
        replicas=1,
        micro_batch=4,
        steps=2,
        learning_rate=RATE,
        optimizer=optimizer("sgd", momentum=0.9, weight_decay=0.01),
    ),
    RunConfig(
        device_iterations=1,
        gradient_accumulation=2,
        replicas=3,
        micro_batch=4,
        learning_rate=RATE,
        accumulation_reduction="sum",
        replica_reduction="sum",
        loss_scale=3.0,
        clip_norm=0.5,
    ),
    RunConfig(
        device_iterations=3,
        gradient_accumulation=2,
        replicas=2,
        micro_batch=3,
        loss_scale=1024.0,
        accumulation_reduction="running_mean",
        optimizer=optimizer("adamw", epsilon=2.0**-10),
    ),
]
ROUNDINGS = 2 * math.sqrt(75)
"""How far one value's own roundings reach, in halves of an eps: 75 terms are the longest sum of any net (of
``residual``), its roundings have random signs, and twice their standard deviation holds for almost all values."""

every_net = pytest.mark.parametrize("name", NETS)


@functools.lru_cache(maxsize=None)
def first_record(name: str) -> RunRecord:
    """The run of a net in the first of the configurations, which several tests compare with."""
    return run(NETS[name](), CONFIGS[0])


def run(net: Net, config: RunConfig, **options: Any) -> RunRecord:
    return train(net, distinct_micro_batches(net, config), config, **options)


def results(record: RunRecord) -> Dict[str, np.ndarray]:
    """All numbers of a record, by name."""
    assert record.weights is not None
    assert record.statistics_by_replica is not None
    return {
        "losses": np.concatenate([np.ravel(losses) for losses in record.losses]),
        **record.weights,
        **{
            f"{name} of replica {replica}": value
            for replica, row in enumerate(record.statistics_by_replica)
            for name, value in row.items()
        },
    }


def assert_same_bits(one: RunRecord, other: RunRecord) -> None:
    left, right = results(one), results(other)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def assert_within(one: Dict[str, np.ndarray], other: Dict[str, np.ndarray], allowed: float) -> None:
    assert one.keys() == other.keys()
    for name in one:
        difference = np.max(np.abs(one[name] - other[name]))
        assert difference <= allowed, f"{name} differs by {difference:.1e}, float64 rounding allows {allowed:.1e}"


def float64_tolerance(net: Net, config: RunConfig, record: RunRecord) -> float:
    exact = results(record)
    return tolerance(lambda rounding: results(run(net, config, rounding=rounding)), ROUNDINGS, repeats=3, exact=exact)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@every_net
def test_training_is_the_plain_loop(name: str, config: RunConfig) -> None:
    """Losses, weights and running statistics are those of a PyTorch loop over all samples."""
    net = NETS[name]()
    record = run(net, config)
    assert record.masks is not None
    theirs = torch_loop.trained(net, distinct_micro_batches(net, config), config, record.masks)

    expected = {
        "losses": theirs["losses"],
        **theirs["weights"],
        **{
            f"{name} of replica {replica}": value
            for replica, row in enumerate(theirs["statistics"])
            for name, value in row.items()
        },
    }
    assert_within(results(record), expected, float64_tolerance(net, config, record))


@every_net
def test_inference_is_the_plain_forward_pass(name: str) -> None:
    """Inference uses running statistics, drops nothing and leaves weights and statistics as they are."""
    net = NETS[name]()
    trained = first_record(name)
    config = RunConfig(device_iterations=3, replicas=2, micro_batch=2, steps=2, training=False)
    data = distinct_micro_batches(net, config, seed=5)
    state: Dict[str, Any] = {"weights": trained.weights, "statistics": trained.statistics}
    record = infer(net, data, config, **state)
    assert record.outputs is not None
    assert record.updates == 0
    allowed = tolerance(
        lambda r: {"logits": np.stack(infer(net, data, config, **state, rounding=r).outputs or ())},
        ROUNDINGS,
        repeats=3,
    )

    for step, outputs in enumerate(record.outputs):
        expected = torch_loop.inferred(net, data.inputs[step], trained.weights or {}, trained.statistics or {})
        assert_within({"logits": outputs}, {"logits": expected}, allowed)
    assert record.weights == trained.weights
    assert record.statistics == trained.statistics


ONE_DEVICE = replace(CONFIGS[0], gradient_accumulation=5, device_iterations=1, micro_batch=3)


@functools.lru_cache(maxsize=None)
def on_one_device(name: str) -> RunRecord:
    """The run of a net without a pipeline, which no schedule changes."""
    return run(NETS[name](), ONE_DEVICE)


@pytest.mark.parametrize("schedule", ["grouped", "interleaved", "sequential"])
@every_net
def test_a_pipeline_computes_what_one_device_does(name: str, schedule: str) -> None:
    """Every cut, schedule and recomputation leaves the same bits as no pipeline at all."""
    net = NETS[name]()
    most = 1 + sum(layer.cut_before for layer in net.layers)
    for stages, recompute in [*((count, count % 2 == 1) for count in range(1, most + 1)), (most, most % 2 == 0)]:
        piped = replace(ONE_DEVICE, stages=net.cut(stages), schedule=schedule, recompute=recompute)
        assert_same_bits(run(net, piped), on_one_device(name))


@at_most(10)
@given(st.sampled_from(["residual", "tied_weights", "bn_convnet"]), st.data())
def test_stage_placement_never_changes_weights(name: str, data: Any) -> None:
    """Cuts at places that are not natural leave the same bits as well."""
    net = NETS[name]()
    config = RunConfig(gradient_accumulation=3, replicas=2)
    borders = data.draw(st.lists(st.booleans(), min_size=len(net.layers) - 1, max_size=len(net.layers) - 1))
    stages = tuple(np.cumsum([0, *borders]).tolist())

    assert_same_bits(run(net, replace(config, stages=stages)), run(net, config))


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("schedule", ["grouped", "interleaved", "sequential"])
def test_slots_are_in_an_order_that_data_can_follow(schedule: str, stages: int) -> None:
    """Each stage works on each micro-batch once each way, after its neighbour, and takes micro-batches in order."""
    order = list(slots(schedule, stages, 5, True))
    when = {slot: time for time, slot in enumerate(order)}

    assert len(when) == len(order) == 2 * stages * 5
    for kind, stage, micro_batch in order:
        before = ("forward", stage - 1, micro_batch) if kind == "forward" else ("backward", stage + 1, micro_batch)
        if kind == "backward" and stage == stages - 1:
            before = ("forward", stage, micro_batch)
        if before in when:
            assert when[before] < when[kind, stage, micro_batch]
        assert micro_batch == 0 or when[kind, stage, micro_batch - 1] < when[kind, stage, micro_batch]


def test_grouped_and_interleaved_overlap_micro_batches() -> None:
    """Only the sequential schedule ends a micro-batch before the next begins."""

    def overlaps(schedule: str) -> bool:
        order = list(slots(schedule, 3, 4, True))
        return order.index(("forward", 0, 1)) < order.index(("backward", 0, 0))

    assert {name: overlaps(name) for name in ("grouped", "interleaved", "sequential")} == {
        "grouped": True,
        "interleaved": True,
        "sequential": False,
    }


PLAIN = ["linear", "mlp", "convnet", "residual", "tied_weights"]


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(
    "factors", [{"gradient_accumulation": 6}, {"replicas": 6}, {"gradient_accumulation": 3, "replicas": 2}], ids=str
)
def test_means_equal_one_big_batch(name: str, factors: Dict[str, Any]) -> None:
    """Without batch norm and dropout, the mean over six micro-batches is the gradient of one batch of them all."""
    net = NETS[name]()
    big = RunConfig(micro_batch=12, steps=2, learning_rate=RATE, optimizer=optimizer("sgd", momentum=0.9))
    small = replace(big, micro_batch=2, **factors)
    # A sum over 12 samples of one batch is one rounded value here and there it is six and their sum.
    allowed = tolerance(lambda r: dict(run(net, big, rounding=r).weights or {}), ROUNDINGS, repeats=3)

    assert_within(dict(run(net, small).weights or {}), dict(run(net, big).weights or {}), allowed)


@at_most(8)
@given(st.sampled_from(PLAIN), st.sampled_from([(1, 6), (2, 3), (3, 2), (6, 1)]), st.sampled_from(["mean", "sum"]))
def test_replicas_and_accumulation_commute(name: str, factors: Any, reduction: str) -> None:
    """R replicas with G turns make the update of G replicas with R turns on the same micro-batches."""
    net = NETS[name]()
    one = RunConfig(
        replicas=factors[0],
        gradient_accumulation=factors[1],
        steps=2,
        accumulation_reduction=reduction,
        replica_reduction=reduction,
    )
    other = replace(one, replicas=factors[1], gradient_accumulation=factors[0])
    allowed = tolerance(lambda r: dict(run(net, one, rounding=r).weights or {}), ROUNDINGS, repeats=3)

    assert_within(dict(run(net, one).weights or {}), dict(run(net, other).weights or {}), allowed)


@every_net
def test_powers_of_two_cancel_as_loss_scales(name: str) -> None:
    """A loss scale that is a power of two leaves no trace, not even in the last bit."""
    net = NETS[name]()

    assert_same_bits(run(net, replace(CONFIGS[0], loss_scale=2.0**12)), first_record(name))


@every_net
def test_order_and_content_of_micro_batches_matter(name: str) -> None:
    """Exchanging the first two micro-batches of different device iterations changes the weights."""
    net = NETS[name]()
    config = RunConfig(device_iterations=3, gradient_accumulation=2, learning_rate=RATE)
    data = distinct_micro_batches(net, config)
    order = [4, 5, 2, 3, 0, 1, *range(6, 12)]
    swapped = train(net, Data(data.inputs[:, order], data.labels[:, order]), config).weights or {}

    for name, weight in (train(net, data, config).weights or {}).items():
        assert np.any(weight != swapped[name])


@pytest.mark.parametrize("layout", ["poptorch", "paddle", "tensorflow"])
def test_outputs_come_from_their_own_micro_batch(layout: str) -> None:
    """A marker in each sample's input comes back at the sample's place in the feed's order."""
    net = nets.linear()
    config = RunConfig(
        device_iterations=2,
        gradient_accumulation=3,
        replicas=5,
        output_layout=layout,
        learning_rate=learning_rate("constant", base=0.0),
    )
    markers = np.arange(1.0, 61.0)
    data = Data(markers[None, :, None] * np.ones((1, 60, 6)), np.zeros((1, 60), dtype=int))
    weights = {"fc1.weight": np.eye(5, 6), "fc1.bias": np.zeros(5)}
    outputs = train(net, data, config, weights=weights).outputs
    assert outputs is not None

    np.testing.assert_array_equal(outputs[0].reshape(60, 5)[:, 0], markers)


def test_weights_change_once_per_device_iteration_or_once_per_run() -> None:
    """Three device iterations make three updates, or one whose gradient is the mean over all of them."""
    net, config = nets.mlp(), RunConfig(device_iterations=3, gradient_accumulation=2, steps=2)
    flat = replace(config, device_iterations=1, gradient_accumulation=6)

    assert run(net, config).updates == 6
    assert run(net, replace(config, update="run")).updates == 2
    assert_same_bits(run(net, replace(config, update="run")), run(net, flat))


def test_the_rate_changes_per_run_or_per_update() -> None:
    """With one device iteration per step both counts agree; with several the device's count runs ahead."""
    net = nets.mlp()
    rates = learning_rate("step", base=0.5, size=1, gamma=0.5)
    single = RunConfig(steps=3, learning_rate=rates)
    several = replace(single, steps=2, device_iterations=3)

    assert_same_bits(run(net, single), run(net, replace(single, rate_changes="update")))
    one, other = (run(net, replace(several, rate_changes=when)).weights or {} for when in ("run", "update"))
    assert np.any(one["fc1.weight"] != other["fc1.weight"])


def test_replicas_keep_their_own_statistics() -> None:
    """Batch norm sees the micro-batches of its replica only; recomputation does not count one twice."""
    net, config = nets.bn_convnet(), RunConfig(gradient_accumulation=3, replicas=2, stages=nets.bn_convnet().cut(2))
    alone = [run(net, config).statistics_by_replica, run(net, replace(config, recompute=True)).statistics_by_replica]

    assert alone[0] is not None
    assert alone[1] is not None
    for name in alone[0][0]:
        assert np.all(alone[0][0][name] != alone[0][1][name])
        np.testing.assert_array_equal(alone[0][0][name], alone[1][0][name])


def test_the_biased_variance_is_smaller() -> None:
    """Running variances of biased batches (n values) are (n-1)/n of the unbiased, but for the initial value."""
    net, config = nets.bn_convnet(), RunConfig(micro_batch=2)
    unbiased = (run(net, config).statistics or {})["bn1.running_var"]
    biased = (run(net, replace(config, unbiased_statistics=False)).statistics or {})["bn1.running_var"]
    count = 2 * 6 * 6

    # Both are 0.9 + 0.1 v: three roundings each of numbers below 4, and a division.
    np.testing.assert_allclose(
        (biased - 0.9) * count, (unbiased - 0.9) * (count - 1), rtol=0, atol=8 * 4 * count * float(np.finfo(float).eps)
    )


def test_masks_are_as_given_and_recorded() -> None:
    """Masks are recorded, all different; given again they lead to the same bits, and other masks do not."""
    net, config = nets.dropout_net(), RunConfig(gradient_accumulation=2, replicas=3, steps=2)
    record = run(net, config)
    assert record.masks is not None
    given_masks = record.masks
    again = run(net, config, masks=lambda layer, place, shape, rate: given_masks[(layer, *place)])
    other = run(net, config, masks=dropout_masks(99))

    assert len(given_masks) == 2 * 2 * 3 * 2
    assert len({mask.tobytes() for mask in given_masks.values()}) == len(given_masks)
    assert_same_bits(record, again)
    assert np.any(results(record)["fc2.weight"] != results(other)["fc2.weight"])


def test_recomputation_drops_the_same_values() -> None:
    """A mask is asked for once per micro-batch, so that even masks from a stream without keys survive recomputation."""
    net = nets.dropout_net()
    config = RunConfig(gradient_accumulation=3, stages=net.cut(2), schedule="sequential")

    def streamed(recompute: bool) -> RunRecord:
        stream = np.random.default_rng(3)
        return run(
            net,
            replace(config, recompute=recompute),
            masks=lambda layer, place, shape, rate: (stream.random(shape) >= rate).astype(float),
        )

    assert_same_bits(streamed(True), streamed(False))


def test_rounding_reaches_every_operation() -> None:
    """The rounding is called forward, backward, in reductions, in statistics and in updates of every weight."""
    net, sites = nets.bn_convnet(), set()

    def rounding(x: np.ndarray, site: str) -> np.ndarray:
        sites.add(site)
        return x

    run(net, RunConfig(clip_norm=1.0), rounding=rounding)
    layers = [layer.name for layer in net.layers] + ["loss"]
    weights = [weight.name for weight in net.weights]

    assert sites == {
        *(f"forward/{name}" for name in layers),
        *(f"backward/{name}" for name in layers),
        *(f"reduce/{name}" for name in [*weights, "clip"]),
        *(f"update/{name}" for name in weights),
        *(f"statistics/{row.name}" for row in net.statistics),
    }


def test_refuses_what_does_not_fit() -> None:
    """Data or stages of the wrong size, and the wrong kind of configuration, are refused with a sentence."""
    net, config = nets.mlp(), RunConfig(replicas=3)
    data = distinct_micro_batches(net, config)
    with pytest.raises(RunError, match=r"^the data has inputs of shape \(1, 6, 6\) and labels .* takes \(1, 4, 6\)"):
        train(net, data, RunConfig(replicas=2))
    with pytest.raises(RunError, match=r"^stages are given for 2 layers: mlp has 7.$"):
        train(net, data, replace(config, stages=(0, 1)))
    with pytest.raises(RunError, match=r"set training=True or call infer"):
        train(net, data, replace(config, training=False))
    with pytest.raises(RunError, match=r"set training=False or call train"):
        infer(net, data, config)
