"""Where the ops of a Paddle program run, and the plan that follows."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import paddle
import pytest

from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.compile import placement, subprograms
from ipu_conformance.emulator.paddle.compile.placement import PlacementOptions
from ipu_conformance.emulator.paddle.errors import PopartError

from ..programs import static

Shard = Tuple[Optional[int], Optional[int]]


def asked(**options: Any) -> PlacementOptions:
    """What a strategy with these options asks for."""
    strategy = IpuStrategy()
    strategy.set_options(options)
    return PlacementOptions.of(strategy)


def ops(shards: List[Shard]) -> Any:
    """The program of a chain of ops with these indices and stages."""
    program = paddle.static.default_main_program()
    value = paddle.static.data("x", [1, 2], "float32")
    for index, stage in shards:
        value = paddle.tanh(value)
        desc = program.global_block().ops[-1].desc
        for name, number in ((placement.INDEX, index), (placement.STAGE, stage)):  # type: ignore[attr-defined]
            if number is not None:
                desc._set_attr(name, number)
    return program


@pytest.mark.parametrize(
    ("indices", "ipus", "stage_of"),
    [
        ([0, 0, 0], (0,), (0, 0, 0)),
        ([0, 1, 2], (0, 1, 2), (0, 1, 2)),
        ([0, 1, 0], (0, 1, 0), (0, 1, 2)),
        ([1, 1, 0], (1, 0), (0, 0, 1)),
        ([None, 1, 1], (0, 1), (0, 1, 1)),
    ],
)
def test_shards_follow_one_another(indices: List[Optional[int]], ipus: Any, stage_of: Any) -> None:
    """Without pipelining each change of the IPU begins a new run of ops."""
    with static():
        program = ops([(index, None) for index in indices])
        placed = placement.place(subprograms.ops_of(program), asked(num_ipus=3, enable_manual_shard=True))

        assert placed.topology.placement == ipus
        assert placed.stage_of == stage_of
        assert placed.topology.ipus_per_replica == 3


@pytest.mark.parametrize(
    ("shards", "ipus", "stage_of"),
    [
        ([(0, 0), (1, 1), (2, 2)], (0, 1, 2), (0, 1, 2)),
        ([(0, 0), (1, 1), (0, 2)], (0, 1, 0), (0, 1, 2)),
        ([(2, 0), (1, 1), (0, 2)], (2, 1, 0), (0, 1, 2)),
        ([(0, None), (2, None), (2, None)], (0, 2), (0, 1, 1)),
    ],
)
def test_pipelines_follow_their_stages(shards: List[Shard], ipus: Any, stage_of: Any) -> None:
    """With pipelining the stage counts, or the rank of the index where none is set."""
    with static():
        program = ops(shards)
        wanted = asked(num_ipus=3, enable_manual_shard=True, enable_pipelining=True)
        placed = placement.place(subprograms.ops_of(program), wanted)

        assert placed.topology.placement == ipus
        assert placed.stage_of == stage_of


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("sequential", 1, 1, True, True)),
        ({"batches_per_step": 4}, ("sequential", 1, 4, True, True)),
        ({"enable_gradient_accumulation": True, "accumulation_factor": 3}, ("sequential", 3, 1, True, True)),
        ({"enable_pipelining": True, "batches_per_step": 4}, ("popart", 4, 1, False, True)),
        (
            {
                "enable_pipelining": True,
                "batches_per_step": 2,
                "enable_gradient_accumulation": True,
                "accumulation_factor": 3,
            },
            ("popart", 3, 2, True, True),
        ),
        ({"enable_pipelining": True, "batches_per_step": 4, "is_training": False}, ("popart", 4, 1, True, False)),
    ],
    ids=str,
)
def test_the_plan_of_a_strategy(options: Any, expected: Any) -> None:
    """Accumulation makes an update of several micro-batches; a pipeline without it updates after each."""
    with static():
        program = ops([(0, 0), (1, 1)])
        wanted = asked(num_ipus=2, enable_manual_shard=True, **options)
        made = placement.plan(placement.place(subprograms.ops_of(program), wanted), wanted)

        assert (
            made.schedule.name,
            made.micro_batches,
            made.device_iterations,
            made.accumulate,
            made.training,
        ) == expected


def test_recomputation_is_for_pipelines_that_train() -> None:
    """auto_recomputation recomputes the stages before the last of a pipeline that trains."""
    base = {"num_ipus": 2, "enable_manual_shard": True, "batches_per_step": 4, "auto_recomputation": 3}
    with static():
        program = ops([(0, 0), (1, 1)])
        for options, expected in (
            ({"enable_pipelining": True}, True),
            ({}, False),
            ({"enable_pipelining": True, "is_training": False}, False),
        ):
            wanted = asked(**base, **options)

            assert placement.plan(placement.place(subprograms.ops_of(program), wanted), wanted).recompute is expected


def test_values_do_not_flow_back() -> None:
    """A stage that reads what a later one makes is refused with both stages."""
    with static():
        program = ops([(0, 0), (1, 2), (1, 1)])

        with pytest.raises(PopartError, match=r"stage 1 consumes .*, which pipeline stage 2 makes"):
            placement.check_order(subprograms.ops_of(program), [0, 2, 1])
