"""``need_avg_shard`` cuts a program that names no IPUs into runs of equally many ops."""

from __future__ import annotations

from typing import Any, List

import numpy as np
import pytest

from ipu_conformance import check

from .. import device
from ..compiling import Compiling, shard

LAST = "avg_shard_pass"
HALVES = [(0, 0), (0, 0), (1, 1), (1, 1)]
"""The index and stage of four ops on two IPUs."""


def chain(paddle: Any, ops: int) -> Any:
    """A chain of ``ops`` ops."""
    x = paddle.static.data("x", [None, 3], "float32")
    for number in range(ops):
        x = paddle.tanh(x) if number % 2 else paddle.exp(x)
    return x


def compiled(paddle: Any, ops: int, **options: Any) -> Compiling:
    """The chain after the pass."""
    last = chain(paddle, ops)
    return Compiling(paddle, ["x"], [last.name], is_training=False, **options).upto(LAST)


def cut(ops: int, ipus: int) -> List[int]:
    """The IPU of each op: runs of ``ops // ipus``, and what is left over on the last."""
    length = ops // ipus
    return sorted([ipu for ipu in range(ipus) for _ in range(length)] + [ipus - 1] * (ops - length * ipus))


@pytest.mark.parametrize("ipus", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("ops", [5, 7, 8, 11])
def test_runs_are_equally_long_and_the_last_takes_the_rest(static: Any, paddle: Any, ops: int, ipus: int) -> None:
    """Every (ops // IPUs) ops the next index begins; ops that are left over stay on the last IPU."""
    indices = [index for index, _ in compiled(paddle, ops, num_ipus=ipus, need_avg_shard=True).shards]

    check.equal(actual=indices, expected=cut(ops, ipus), what=f"the index of each of {ops} ops")


@pytest.mark.parametrize("ipus", [2, 3])
def test_stages_are_the_indices(static: Any, paddle: Any, ipus: int) -> None:
    """Stage and index of every op are the same number."""
    shards = compiled(paddle, 7, num_ipus=ipus, need_avg_shard=True).shards

    check.equal(actual=shards, expected=[(ipu, ipu) for ipu in cut(7, ipus)], what="the index and stage of each op")


@pytest.mark.parametrize(("ipus", "replicas"), [(2, 2), (4, 2), (6, 3), (6, 2)])
def test_replicas_share_the_ipus(static: Any, paddle: Any, ipus: int, replicas: int) -> None:
    """A replica's ops are cut for its own IPUs, not for those of all replicas."""
    options = {"num_ipus": ipus, "enable_replicated_graphs": True, "replicated_graph_count": replicas}
    indices = [index for index, _ in compiled(paddle, 11, need_avg_shard=True, **options).shards]

    check.equal(actual=indices, expected=cut(11, ipus // replicas), what="the index of each op")


@pytest.mark.parametrize("ipus", [1, 4])
def test_nothing_is_cut_unasked(static: Any, paddle: Any, ipus: int) -> None:
    """Without ``need_avg_shard`` no op gets an index or a stage."""
    shards = compiled(paddle, 5, num_ipus=ipus).shards

    check.equal(actual=shards, expected=[(None, None)] * 5, what="the index and stage of each op")


def test_shards_of_the_user_are_kept_unasked(static: Any, paddle: Any) -> None:
    """Without ``need_avg_shard`` ops keep what a guard wrote."""
    x = paddle.static.data("x", [None, 3], "float32")
    with paddle.static.ipu_shard_guard(3, 1):
        x = paddle.exp(x)
    x = paddle.tanh(x)
    shards = Compiling(paddle, ["x"], [x.name], is_training=False).upto(LAST).shards

    check.equal(actual=shards, expected=[(3, 1), (None, None)], what="the index and stage of each op")


def test_shards_of_the_user_are_replaced(static: Any, paddle: Any) -> None:
    """With ``need_avg_shard`` the cut replaces what a guard wrote."""
    with paddle.static.ipu_shard_guard(3, 5):
        last = chain(paddle, 4)
    compiling = Compiling(paddle, ["x"], [last.name], is_training=False, num_ipus=2, need_avg_shard=True).upto(LAST)

    check.equal(actual=compiling.shards, expected=HALVES, what="the index and stage of each op")


def test_the_backward_pass_is_not_counted(static: Any, paddle: Any) -> None:
    """In training, only the ops of the forward pass are counted, and the folded optimizer is in no shard."""
    hidden = static.nn.fc(static.data("x", [None, 3], "float32"), 2)
    loss = paddle.mean(paddle.tanh(hidden))
    paddle.optimizer.SGD(0.5).minimize(loss)

    compiling = Compiling(paddle, ["x"], [loss.name], num_ipus=2, need_avg_shard=True).upto(LAST)

    check.equal(actual=compiling.shards, expected=HALVES, what="the index and stage of each op of the forward pass")
    check.equal(actual=shard(compiling.only("popart_optimizer"))[0], expected=None, what="popart_optimizer's index")


@pytest.mark.parametrize("ipus", [2, 3])
def test_a_cut_program_computes_what_the_whole_one_does(static: Any, paddle: Any, ipus: int) -> None:
    """The values of a pipeline that was cut by the pass are bit for bit those of one IPU."""
    last = chain(paddle, 6)
    batch = np.linspace(-1, 1, 4 * ipus * 3, dtype=np.float32).reshape(4 * ipus, 3)
    pipeline: Any = {"num_ipus": ipus, "need_avg_shard": True, "enable_manual_shard": True, "enable_pipelining": True}
    whole, pieces = (
        device.compiled(paddle, [last], batches_per_step=ipus, **options).run(batch)[0] for options in ({}, pipeline)
    )

    check.identical(actual=pieces, expected=whole, what="the output of the cut program")
