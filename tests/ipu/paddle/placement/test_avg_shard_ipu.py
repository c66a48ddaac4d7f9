"""``need_avg_shard`` cuts a program that names no IPUs into runs of equally many ops."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from .. import device
from ..compiling import Compiling, Shard, shard

HALVES = [(0, 0), (0, 0), (1, 1), (1, 1)]
"""The index and stage of four ops on two IPUs."""


def chain(paddle: Any, ops: int) -> Any:
    """A chain of ``ops`` ops."""
    x = paddle.static.data("x", [None, 3], "float32")
    for number in range(ops):
        x = paddle.tanh(x) if number % 2 else paddle.exp(x)
    return x


def shards(paddle: Any, last: Any, **options: Any) -> List[Shard]:
    """The index and stage of each op after the pass."""
    return Compiling(paddle, ["x"], [last.name], is_training=False, **options).upto("avg_shard_pass").shards


def cut(ops: int, ipus: int) -> List[int]:
    """The IPU of each op: runs of ``ops // ipus``, and what is left over on the last."""
    length = ops // ipus
    return sorted([ipu for ipu in range(ipus) for _ in range(length)] + [ipus - 1] * (ops - length * ipus))


WHOLE = [(ops, ipus, 1) for ops in (5, 7, 8, 11) for ipus in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize(("ops", "ipus", "replicas"), [*WHOLE, (11, 2, 2), (11, 4, 2), (11, 6, 3), (11, 6, 2)])
def test_runs_are_equally_long_and_the_last_takes_the_rest(
    static: Any, paddle: Any, ops: int, ipus: int, replicas: int
) -> None:
    """Every (ops // IPUs of a replica) ops the next index and stage begin; the last IPU takes the ops left over."""
    options = {"num_ipus": ipus, "enable_replicated_graphs": replicas > 1, "replicated_graph_count": replicas}
    placed = shards(paddle, chain(paddle, ops), need_avg_shard=True, **options)

    expected = [(ipu, ipu) for ipu in cut(ops, ipus // replicas)]
    check.equal(actual=placed, expected=expected, what=f"the index and stage of each of {ops} ops")


USERS: Dict[str, Tuple[int, Dict[str, Any], List[Shard]]] = {
    "1 IPU": (0, {"num_ipus": 1}, [(None, None)] * 4),
    "4 IPUs": (0, {"num_ipus": 4}, [(None, None)] * 4),
    "kept": (1, {}, [(3, 1), (None, None), (None, None), (None, None)]),
    "replaced": (4, {"num_ipus": 2, "need_avg_shard": True}, HALVES),
}
"""How many of four ops a guard encloses, the options, and the index and stage of each op."""


@pytest.mark.parametrize(("guarded", "options", "expected"), USERS.values(), ids=list(USERS))
def test_shards_of_the_user_are_kept_unasked(
    static: Any, paddle: Any, guarded: int, options: Any, expected: List[Shard]
) -> None:
    """Without ``need_avg_shard`` ops keep what a guard wrote, or nothing; with it the cut replaces it."""
    with static.ipu_shard_guard(3, 1):
        value = chain(paddle, guarded)
    for _ in range(guarded, 4):
        value = paddle.tanh(value)

    check.equal(actual=shards(paddle, value, **options), expected=expected, what="the index and stage of each op")


def test_the_backward_pass_is_not_counted(static: Any, paddle: Any) -> None:
    """In training, only the ops of the forward pass are counted, and the folded optimizer is in no shard."""
    hidden = static.nn.fc(static.data("x", [None, 3], "float32"), 2)
    loss = paddle.mean(paddle.tanh(hidden))
    paddle.optimizer.SGD(0.5).minimize(loss)

    compiling = Compiling(paddle, ["x"], [loss.name], num_ipus=2, need_avg_shard=True).upto("avg_shard_pass")

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
