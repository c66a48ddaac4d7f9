"""Which pipelines are accepted: their depth, their stages and the number of their IPUs."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .. import exact
from ..exact import Device, counts

Shards = List[Dict[str, int]]


def compiled(
    paddle: Any, shards: Shards, config: RunConfig, *, training: bool = True, ipus: int = 0, **options: Any
) -> Device:
    """A chain with these shards, compiled for a pipeline."""
    made = exact.chain(paddle, stages=len(shards), training=training, shards=shards)
    count = ipus or max(shard.get("index", 0) for shard in shards) + 1
    chosen = exact.strategy(paddle, config, ipus=count, training=training, **{"pipelined": True, **options})
    return Device(paddle, made, chosen)


def in_order(stages: int) -> Shards:
    """One stage on each IPU."""
    return [{"index": number, "stage": number} for number in range(stages)]


def needed(stages: int, training: bool) -> int:
    """The micro-batches that a pipeline needs: backward stages count too, the last one but once."""
    return 2 * (stages - 1) + 1 if training else stages


@pytest.mark.parametrize("accumulating", [True, False], ids=["accumulation", "batches"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_pipeline_that_is_too_shallow_is_refused(
    paddle: Any, static: Any, stages: int, training: bool, accumulating: bool
) -> None:
    """The depth must be at least the number of stages: S for inference, 2(S-1)+1 for training."""
    depth = needed(stages, training) - 1
    config = counts(needed(stages, training) + 5, depth) if accumulating and depth > 1 else counts(depth)
    name = "gradient accumulation factor" if config.gradient_accumulation > 1 else "batchesPerStep"

    with check.raises(RuntimeError, match=rf"For pipelining, depth \({name}\) must", what="a shallow pipeline"):
        compiled(paddle, in_order(stages), config, training=training)


@pytest.mark.parametrize("accumulating", [True, False], ids=["accumulation", "batches"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_pipeline_of_the_needed_depth_runs(
    paddle: Any, static: Any, stages: int, training: bool, accumulating: bool
) -> None:
    """As many micro-batches as there are stages are enough; every one of them comes out."""
    depth = needed(stages, training)
    config = counts(1, depth) if accumulating else counts(depth)
    x = exact.samples(depth)
    out, _ = compiled(paddle, in_order(stages), config, training=training).run(x)
    expected = exact.plain_run(x, config, stages=stages, mean=False, rate=0.0).outputs  # a mean of 7 is inexact

    check.shape(actual=out, expected=(depth, 1, exact.FEATURES), what="the output")
    if accumulating or not training:
        check.identical(actual=out, expected=expected, what="the output")


@pytest.mark.parametrize("stages", [2, 3])
def test_shards_need_no_depth(paddle: Any, static: Any, stages: int) -> None:
    """Without pipelining one micro-batch is enough for any number of IPUs."""
    out, _ = compiled(paddle, in_order(stages), counts(), pipelined=False).run(exact.samples(1))
    expected = exact.plain_run(exact.samples(1), counts(), stages=stages).outputs

    check.identical(actual=out, expected=expected[0], what="the output")


def test_without_stages_the_index_is_the_stage(paddle: Any, static: Any) -> None:
    """Ops that name an IPU only are pipelined in the order of the IPUs: three stages train with five micro-batches."""
    shards = [{"index": number} for number in range(3)]
    out, _ = compiled(paddle, shards, counts(1, 5)).run(exact.samples(5))

    check.shape(actual=out, expected=(5, 1, exact.FEATURES), what="the output")


def test_without_stages_the_depth_is_that_of_the_indices(paddle: Any, static: Any) -> None:
    """Three IPUs without stages are refused with four micro-batches."""
    shards = [{"index": number} for number in range(3)]

    with check.raises(RuntimeError, match="For pipelining, depth", what="a shallow pipeline"):
        compiled(paddle, shards, counts(1, 4))


@pytest.mark.parametrize("without", [0, 1, 2])
def test_a_stage_on_some_ops_only_is_refused(paddle: Any, static: Any, without: int) -> None:
    """If one op names its stage, all must."""
    shards = in_order(3)
    del shards[without]["stage"]

    with check.raises(RuntimeError, match="Only some ops have had their pipeline stage set", what="a missing stage"):
        compiled(paddle, shards, counts(1, 7))


def test_stages_are_ignored_without_pipelining(paddle: Any, static: Any) -> None:
    """A stage on some ops only, out of order, is nothing to sharded execution."""
    shards = [{"index": 0, "stage": 2}, {"index": 1}, {"index": 0, "stage": 0}]
    out, _ = compiled(paddle, shards, counts(2), training=False, pipelined=False).run(exact.samples(2))
    expected = exact.plain_run(exact.samples(2), counts(2), stages=3, rate=0.0).outputs

    check.identical(actual=out, expected=expected, what="the output")


def test_one_stage_on_two_ipus_is_refused(paddle: Any, static: Any) -> None:
    """All ops of a stage are on one IPU."""
    shards = [{"index": 0, "stage": 0}, {"index": 1, "stage": 0}, {"index": 1, "stage": 1}]

    with check.raises(RuntimeError, match="same pipeline stage", what="a stage on two IPUs"):
        compiled(paddle, shards, counts(1, 7))


def test_two_stages_on_one_ipu_are_accepted(paddle: Any, static: Any) -> None:
    """A pipeline may come back to an IPU in a later stage."""
    shards = [{"index": 0, "stage": 0}, {"index": 1, "stage": 1}, {"index": 0, "stage": 2}]
    out, _ = compiled(paddle, shards, counts(1, 8)).run(exact.samples(8))
    expected = exact.plain_run(exact.samples(8), counts(1, 8), stages=3, rate=0.0).outputs

    check.identical(actual=out, expected=expected, what="the output")


def test_a_stage_that_reads_from_a_later_one_is_refused(paddle: Any, static: Any) -> None:
    """Values flow from earlier stages to later ones."""
    shards = [{"index": 0, "stage": 1}, {"index": 1, "stage": 0}]

    with check.raises(RuntimeError, match="pipeline stage", what="a pipeline that goes back"):
        compiled(paddle, shards, counts(1, 7))


def test_a_gap_between_stages_is_refused(paddle: Any, static: Any) -> None:
    """Stages are numbered without a gap."""
    shards = [{"index": 0, "stage": 0}, {"index": 1, "stage": 2}]

    with check.raises(RuntimeError, match="Pipeline stage 1 has no op", what="a gap"):
        compiled(paddle, shards, counts(1, 7))


def test_pipelining_needs_more_than_one_ipu(paddle: Any, static: Any) -> None:
    """One IPU per replica is no pipeline."""
    made = exact.chain(paddle)
    chosen = exact.strategy(paddle, counts(1, 5))
    chosen.set_options({"enable_pipelining": True})

    with check.raises(RuntimeError, match="Pipelining requires more than 1 IPU", what="a pipeline on one IPU"):
        Device(paddle, made, chosen)


@pytest.mark.parametrize(("ipus", "highest"), [(2, 2), (2, 3), (3, 3)])
def test_an_index_beyond_the_ipus_is_refused(paddle: Any, static: Any, ipus: int, highest: int) -> None:
    """An op is placed on one of the IPUs of its replica."""
    with check.raises(RuntimeError, match=f"IPU {highest}", what="an index beyond num_ipus"):
        compiled(paddle, in_order(highest + 1), counts(1, 9), ipus=ipus)


def test_more_ipus_than_stages_are_accepted(paddle: Any, static: Any) -> None:
    """IPUs that no op names stay idle."""
    out, _ = compiled(paddle, in_order(2), counts(1, 3), ipus=4).run(exact.samples(3))

    check.shape(actual=out, expected=(3, 1, exact.FEATURES), what="the output")


@pytest.mark.parametrize(("num_ipus", "replicas"), [(3, 2), (1, 2), (5, 4)])
def test_replicas_share_the_ipus_evenly(paddle: Any, static: Any, num_ipus: int, replicas: int) -> None:
    """num_ipus is the IPUs per replica times the replicas."""
    chosen = exact.strategy(paddle, counts(1, 1, replicas))
    chosen.set_options({"num_ipus": num_ipus})

    with check.raises(RuntimeError, match="num_ipus", what="a number of IPUs that does not divide"):
        Device(paddle, exact.chain(paddle), chosen)


@pytest.mark.parametrize("option", ["replicated_graph_count", "accumulation_factor"])
def test_a_factor_needs_its_switch(paddle: Any, static: Any, option: str) -> None:
    """Replicas and accumulation count only where they are enabled."""
    chosen = exact.strategy(paddle)
    chosen.set_options({option: 2, "num_ipus": 2 if option == "replicated_graph_count" else 1})

    with check.raises(RuntimeError, match=option, what="a factor that is off"):
        Device(paddle, exact.chain(paddle), chosen)


def test_shards_by_hand_count_only_when_enabled(paddle: Any, static: Any) -> None:
    """Without enable_manual_shard all ops are on IPU 0, whatever they bear."""
    made = exact.chain(paddle, stages=3, training=False)
    out, _ = Device(paddle, made, exact.strategy(paddle, training=False)).run(exact.samples(1))
    expected = exact.plain_run(exact.samples(1), counts(), stages=3, rate=0.0).outputs

    check.identical(actual=out, expected=expected[0], what="the output")
