"""Which pipelines are accepted: their depth, their stages and the number of their IPUs."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .. import exact
from ..device import Device as AnyDevice
from ..device import started
from ..exact import Device, counts

Shards = List[Dict[str, int]]


def compiled(
    paddle: Any, shards: Shards, config: RunConfig, *, training: bool = True, ipus: int = 0, **options: Any
) -> Device:
    """A chain with these shards, compiled for a pipeline."""
    chain = exact.chain(paddle, stages=len(shards), training=training, shards=shards)
    count = ipus or max(shard.get("index", 0) for shard in shards) + 1
    chosen = exact.strategy(paddle, config, ipus=count, training=training, **{"pipelined": True, **options})
    return Device(paddle, chain, chosen)


def in_order(stages: int) -> Shards:
    """One stage on each IPU."""
    return [{"index": number, "stage": number} for number in range(stages)]


def needed(stages: int, training: bool) -> int:
    """The micro-batches that a pipeline needs: backward stages count too, but the last stage counts once."""
    return 2 * (stages - 1) + 1 if training else stages


each_pipeline = pytest.mark.parametrize(
    ("stages", "training", "accumulating"),
    [
        pytest.param(stages, kind == "training", by == "accumulation", id=f"{stages}-{kind}-{by}")
        for stages in (2, 3, 4) for kind in ("training", "inference") for by in ("accumulation", "batches")
    ],
)  # fmt: skip


@each_pipeline
def test_a_pipeline_that_is_too_shallow_is_refused(
    paddle: Any, static: Any, stages: int, training: bool, accumulating: bool
) -> None:
    """The depth must be at least the number of stages: S for inference, 2(S-1)+1 for training."""
    depth = needed(stages, training) - 1
    config = counts(needed(stages, training) + 5, depth) if accumulating and depth > 1 else counts(depth)
    name = "gradient accumulation factor" if config.gradient_accumulation > 1 else "batchesPerStep"

    with check.raises(RuntimeError, match=rf"For pipelining, depth \({name}\) must", what="a shallow pipeline"):
        compiled(paddle, in_order(stages), config, training=training)


@each_pipeline
def test_a_pipeline_of_the_needed_depth_runs(
    paddle: Any, static: Any, stages: int, training: bool, accumulating: bool
) -> None:
    """As many micro-batches as there are stages are enough; every one of them comes out."""
    depth = needed(stages, training)
    config = counts(1, depth) if accumulating else counts(depth)
    x = exact.samples(depth)
    out, _ = compiled(paddle, in_order(stages), config, training=training).run(x)
    expected = exact.plain_run(x, config, stages=stages, mean=False, rate=0.0).outputs  # a mean of 7 is inexact
    untrained = depth if accumulating or not training else 1  # the micro-batches that meet the initial weights

    check.shape(actual=out, expected=(depth, 1, exact.FEATURES), what="the output")
    check.identical(actual=out[:untrained], expected=expected[:untrained], what="the output by micro-batch")


SHARDED: Dict[str, Any] = {"pipelined": False}
RUNS: Dict[str, Tuple[Shards, RunConfig, Dict[str, Any]]] = {
    "shards-on-2": (in_order(2), counts(), SHARDED),
    "shards-on-3": (in_order(3), counts(), SHARDED),
    "indices-without-stages": ([{"index": number} for number in range(3)], counts(1, 5), {}),
    "idle-ipus": (in_order(2), counts(1, 3), {"ipus": 4}),
    "some-stages-of-shards": (
        [{"index": 0, "stage": 2}, {"index": 1}, {"index": 0, "stage": 0}], counts(2), {"training": False, **SHARDED},
    ),
    "two-stages-on-one-ipu": (
        [{"index": 0, "stage": 0}, {"index": 1, "stage": 1}, {"index": 0, "stage": 2}], counts(1, 8), {},
    ),
    "without-manual-shards": (in_order(3), counts(), {"ipus": 1, "training": False, **SHARDED}),
}  # fmt: skip


@pytest.mark.parametrize(("shards", "config", "options"), RUNS.values(), ids=list(RUNS))
def test_a_pipeline_runs(paddle: Any, static: Any, shards: Shards, config: RunConfig, options: Any) -> None:
    """Ops that name an IPU only are pipelined in the order of the IPUs; IPUs that no op names stay idle.

    A pipeline may come back to an IPU in a later stage. Without pipelining one micro-batch is enough and stages are
    nothing, and without enable_manual_shard all ops are on IPU 0, whatever they carry.
    """
    x = exact.samples(config.micro_batches)
    out, _ = compiled(paddle, shards, config, **options).run(x)
    expected = exact.plain_run(x, config, stages=len(shards), mean=False, rate=0.0).outputs

    check.identical(actual=out.reshape(expected.shape), expected=expected, what="the output by micro-batch")


def test_a_cast_between_stages_needs_no_stage(paddle: Any, static: Any) -> None:
    """A cast that names no place runs in the stage that makes its input, so that all ops have one."""
    x = static.data("x", [None, 2], "float32")
    with static.ipu_shard_guard(0, 0):
        doubled = x * 2.0
    cast = paddle.cast(doubled, "int32")
    with static.ipu_shard_guard(1, 1):
        out = paddle.add(cast, cast)
    fed = exact.samples(3)
    with check.accepted("a cast that names no stage"):
        (fetched,) = exact.inference(paddle, out, config=counts(3), ipus=2, pipelined=True).run(fed)

    check.identical(actual=fetched.reshape(3, 2), expected=2 * (fed * 2).astype(np.int32), what="the sum")


def summed(paddle: Any, config: RunConfig, loss: Any, stages: int) -> AnyDevice:
    """A pipeline that adds up its gradients and divides them by nothing."""
    paddle.optimizer.SGD(exact.RATE).minimize(loss)
    started(paddle)
    options: Any = {"ipus": stages, "pipelined": True, "accumulation_and_replication_reduction_type": 0}
    return AnyDevice(paddle, [loss], exact.strategy(paddle, config, **options))


@pytest.mark.parametrize("stages", [3, 4, 5])
def test_a_value_passes_over_stages(paddle: Any, static: Any, stages: int) -> None:
    """What the first stage hands to the last reaches it through those between, and its gradient comes back once."""
    config = counts(1, needed(stages, training=True), 2)
    value = first = static.data("x", [None, 2], "float32")
    for number in range(stages):
        with static.ipu_shard_guard(number, number):
            start = paddle.nn.initializer.Constant(2.0)
            value = value * static.create_parameter([2], "float32", f"w{number}", default_initializer=start)
            first = value if number == 0 else first
            if number == stages - 1:
                loss = paddle.sum(paddle.add(value, first))
    device = summed(paddle, config, loss, stages)
    x = exact.samples(config.micro_batches)
    (losses,) = device.run(x)
    device.sync()
    total = x.sum(axis=0, dtype=np.float64)

    expected = np.float32((2.0**stages + 2.0) * x.sum(axis=1))
    check.identical(actual=np.sort(losses.reshape(-1)), expected=np.sort(expected), what="the losses")
    for number in range(stages):
        gradient = total * (2.0 ** (stages - 1) + (number == 0))
        weight = np.float32(2.0 - exact.RATE * gradient)
        check.identical(actual=device.value(f"w{number}"), expected=weight, what=f"the weight of stage {number}")


@pytest.mark.parametrize("stages", [3, 4])
def test_a_weight_of_all_stages_gets_the_gradients_of_all(paddle: Any, static: Any, stages: int) -> None:
    """A weight that every stage multiplies by is one weight: its gradient is the sum over its uses."""
    config = counts(1, needed(stages, training=True), 2)
    value = static.data("x", [None, 2], "float32")
    start = paddle.nn.initializer.Constant(2.0)
    with static.ipu_shard_guard(0, 0):
        weight = static.create_parameter([2], "float32", "w", default_initializer=start)
    for number in range(stages):
        with static.ipu_shard_guard(number, number):
            value = paddle.multiply(value, weight)
            if number == stages - 1:
                loss = paddle.sum(value)
    device = summed(paddle, config, loss, stages)
    x = exact.samples(config.micro_batches)
    device.run(x)
    device.sync()
    gradient = stages * 2.0 ** (stages - 1) * x.sum(axis=0, dtype=np.float64)

    check.identical(actual=device.value("w"), expected=np.float32(2.0 - exact.RATE * gradient), what="the weight")


SOME_SET = "Only some ops have had their pipeline stage set"
REFUSED: Dict[str, Tuple[Shards, int, str]] = {
    "shallow-by-index": ([{"index": number} for number in range(3)], 4, "For pipelining, depth"),
    **{
        f"no-stage-{without}": (
            [{"index": number, **({} if number == without else {"stage": number})} for number in range(3)], 7, SOME_SET,
        )
        for without in range(3)
    },
    "one-stage-on-two-ipus": (
        [{"index": 0, "stage": 0}, {"index": 1, "stage": 0}, {"index": 1, "stage": 1}], 7, "",
    ),
    "backwards": ([{"index": 0, "stage": 1}, {"index": 1, "stage": 0}], 7, ""),
    "gap": ([{"index": 0, "stage": 0}, {"index": 1, "stage": 2}], 7, ""),
}  # fmt: skip
BEYOND = {f"{ipus}-{highest}": (in_order(highest + 1), 9, "", ipus) for ipus, highest in ((2, 2), (2, 3), (3, 3))}
"""Indices that are beyond the IPUs of a replica."""


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.emulator) if what == "gap" else what for what in (*REFUSED, *BEYOND)]
)
def test_wrong_stages_are_refused(paddle: Any, static: Any, what: str) -> None:
    """All ops or none name a stage; a stage is on one IPU; stages have no gap, and values flow to later ones.

    An op is placed on one of the IPUs of its replica.
    """
    shards, depth, sentence, ipus = BEYOND.get(what) or (*REFUSED[what], 0)

    with check.raises(RuntimeError, match=sentence, what=f"the pipeline {what}"):
        compiled(paddle, shards, counts(1, depth), ipus=ipus)


OPTIONS: Dict[str, Tuple[RunConfig, Dict[str, Any], str]] = {
    "pipelining on one IPU": (counts(1, 5), {"enable_pipelining": True}, "Pipelining requires more than 1 IPU"),
    **{
        f"{ipus} IPUs for {replicas} replicas": (counts(1, 1, replicas), {"num_ipus": ipus}, "")
        for ipus, replicas in ((3, 2), (1, 2), (5, 4))
    },
    "replicas that are off": (counts(), {"replicated_graph_count": 2, "num_ipus": 2}, ""),
    "accumulation that is off": (counts(), {"accumulation_factor": 2}, ""),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_options_that_contradict_each_other_are_refused(paddle: Any, static: Any, what: str) -> None:
    """A pipeline needs two IPUs, replicas share the IPUs evenly, and a factor counts only where it is enabled."""
    config, options, sentence = OPTIONS[what]

    with check.raises(RuntimeError, match=sentence, what=what):
        Device(paddle, exact.chain(paddle), exact.strategy(paddle, config, **options))
