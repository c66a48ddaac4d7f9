"""The split of an optimizer's ops by the stage that owns each weight."""

from __future__ import annotations

from typing import Any, Dict, List

import paddle

from ipu_conformance.emulator.paddle.compile import subprograms
from ipu_conformance.emulator.paddle.optim import stage_updates
from ipu_conformance.emulator.paddle.optim.folding import fold

from ..programs import static

OWNER = {"a": 0, "b": 1}


def trained(optimizer: Any) -> None:
    """A program with two weights."""
    x = paddle.static.data("x", [2, 3], "float32")
    first = paddle.static.create_parameter([3], "float32", name="a")
    second = paddle.static.create_parameter([3], "float32", name="b")
    optimizer.minimize(paddle.mean(paddle.square(paddle.multiply(paddle.multiply(x, first), second))))


def split(program: Any, owner: Dict[str, int], stages: int) -> stage_updates.Updates:
    """The update of that program."""
    folded = fold(list(program.global_block().ops))
    states = {state: weight for weight, slots in folded.states.items() for state in slots.values()}
    return stage_updates.split(program, owner, folded.gradients, states, stages)


def types(ops: Any) -> List[str]:
    """The types of ops."""
    return [op.type() for op in ops]


def test_every_stage_updates_its_own_weights() -> None:
    """An optimizer's op is in the stage of its weight, and nothing comes before."""
    with static() as (program, _, _):
        trained(paddle.optimizer.Adam(0.1))
        made = split(program, OWNER, 2)

        assert [types(ops) for ops in made.stages] == [["adam"], ["adam"]]
        assert [ops[0].input("Param") for ops in made.stages] == [["a"], ["b"]]
        assert made.before == ()
        assert not made.reads_gradients


def test_the_global_norm_comes_before_all_stages() -> None:
    """What depends on all gradients is computed once; each stage reads the factor."""
    with static() as (program, _, _):
        trained(paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0)))
        made = split(program, OWNER, 2)

        assert types(made.before).count("squared_l2_norm") == 2
        assert "sum" in types(made.before)
        assert [types(ops) for ops in made.stages] == [["elementwise_mul", "sgd"], ["elementwise_mul", "sgd"]]
        assert len(made.passed) == 1
        assert made.reads_gradients


def test_one_stage_keeps_the_order_of_the_program() -> None:
    """A program that is not cut updates by its own ops as they stand."""
    with static() as (program, _, _):
        trained(paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0), weight_decay=0.1))
        made = split(program, {"a": 0, "b": 0}, 1)

        assert types(made.stages[0]) == types(stage_updates.updating(program))
        assert made.before == ()


def test_the_rate_is_what_the_host_sets() -> None:
    """A learning rate is read by the update and neither weight nor state."""
    with static() as (program, _, _):
        trained(paddle.optimizer.Adam(0.1))

        assert split(program, OWNER, 2).rates == ("learning_rate_0",)


def test_a_rate_of_its_own_is_computed_from_the_common_one() -> None:
    """The factor of a weight's rate is part of the program; the host sets the common rate."""
    with static() as (program, _, _):
        x = paddle.static.data("x", [2, 3], "float32")
        own = paddle.ParamAttr(name="a", learning_rate=0.5)
        first = paddle.static.create_parameter([3], "float32", attr=own)
        second = paddle.static.create_parameter([3], "float32", name="b")
        loss = paddle.mean(paddle.square(paddle.multiply(paddle.multiply(x, first), second)))
        paddle.optimizer.SGD(0.1).minimize(loss)
        made = split(program, OWNER, 2)

        assert made.rates == ("learning_rate_0",)
        assert types(made.before) == ["scale"]
        assert len(made.passed) == 1
        assert not made.reads_gradients


def test_a_forward_program_is_left_without_the_update() -> None:
    """What has the optimizer's role is taken out of a copy."""
    with static() as (program, _, _):
        trained(paddle.optimizer.SGD(0.1))
        count = len(subprograms.ops_of(program))
        rest = stage_updates.without(program)

        assert not stage_updates.updating(rest)
        assert len(subprograms.ops_of(program)) == count
