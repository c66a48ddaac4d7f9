"""The cut of a program into stages, each with a backward pass of its own."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle.base import core

from ipu_conformance.emulator.core import plan as planning
from ipu_conformance.emulator.core.engine import Engine
from ipu_conformance.emulator.core.topology import Topology
from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.compile import partition
from ipu_conformance.emulator.paddle.compile.partition import Stage
from ipu_conformance.emulator.paddle.compile.slot_programs import Programs
from ipu_conformance.emulator.paddle.run import scopes
from ipu_conformance.emulator.paddle.run.machine import PaddleMachine
from tests.unit.examples import at_most

from ..programs import static


def parameter(name: str, values: Sequence[float]) -> Any:
    """A weight of the program that is being built."""
    start = paddle.nn.initializer.Assign(np.array(values, np.float32))
    return paddle.static.create_parameter([len(values)], "float32", name=name, default_initializer=start)


def skipping() -> List[str]:
    """A value made first, used next and again at the end; the names of what the four ops make."""
    x = paddle.static.data("x", [2, 3], "float32")
    first = paddle.tanh(paddle.add(x, parameter("a", [1.0, 2.0, 3.0])))
    second = paddle.multiply(first, parameter("b", [0.5, 1.5, 2.5]))
    third = paddle.add(second, first)
    loss = paddle.sum(third)
    return [first.name, second.name, third.name, loss.name]


def cut(program: Any, stage_of: Sequence[int], loss: Any, **more: Any) -> List[Stage]:
    """The stages of a program that is fed ``x``."""
    given = {"feeds": ("x",), "fetches": (loss,), "loss": loss, "trainable": ("a", "b"), **more}
    return partition.cut(program, stage_of, max(stage_of) + 1, **given)


def types(ops: Sequence[Any]) -> List[str]:
    """The types of ops."""
    return [op.type() for op in ops]


def test_one_stage_is_the_whole_program() -> None:
    """Nothing is received or handed on, and backward is what Paddle derives."""
    with static() as (program, _, _):
        names = skipping()
        (stage,) = cut(program, [0] * 5, names[-1])

        assert types(stage.forward) == ["elementwise_add", "tanh", "elementwise_mul", "elementwise_add", "reduce_sum"]
        assert (stage.received, stage.handed, stage.incoming, stage.outgoing) == ((), (), {}, {})
        assert stage.gradients == {"a": "a@GRAD", "b": "b@GRAD"}
        assert stage.lasting == ("a", "b")
        assert stage.feeds == ("x",)
        assert stage.fetches == (names[-1],)
        assert not any(partition._separates(op) for op in stage.backward)


def test_a_value_passes_through_the_stages_between() -> None:
    """What a later stage than the next reads is handed on by each stage between, and its gradient comes back so."""
    with static() as (program, _, _):
        first, second, _, loss = skipping()
        stages = cut(program, [0, 0, 1, 2, 2], loss)

        assert [stage.received for stage in stages] == [(), (first,), (first, second)]
        assert [stage.handed for stage in stages] == [(first,), (first, second), ()]
        assert [set(stage.incoming) for stage in stages] == [{first}, {first, second}, set()]
        assert [set(stage.outgoing) for stage in stages] == [set(), {first}, {first, second}]
        assert [set(stage.gradients) for stage in stages] == [{"a"}, {"b"}, set()]


def test_a_value_that_a_stage_does_not_use_passes_through_too() -> None:
    """A stage between that has nothing to do with a value hands it and its gradient on, beside what it does itself."""
    fed = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    with static() as (program, _, _):
        x = paddle.static.data("x", [2, 3], "float32")
        first = paddle.add(x, parameter("a", [1.0, 2.0, 3.0]))
        other = paddle.multiply(x, parameter("b", [0.5, 1.5, 2.5]))
        loss = paddle.sum(paddle.tanh(paddle.add(first, other)))
        stages = cut(program, [0, 1, 2, 2, 2], loss.name)

        assert stages[1].received == (first.name,)
        assert stages[1].handed == (first.name, other.name)
        assert set(stages[1].outgoing) == {first.name}
        parts, whole = (_gradients(each, fed) for each in (stages, cut(program, [0] * 5, loss.name)))
        for name in ("a", "b"):
            np.testing.assert_array_equal(parts[name], whole[name])


def test_whole_numbers_have_no_gradient() -> None:
    """An integer that crosses a border is handed on and nothing comes back."""
    with static() as (program, _, _):
        x = paddle.static.data("x", [2, 3], "float32")
        largest = paddle.argmax(x, axis=1)
        value = paddle.multiply(x, parameter("a", [1.0, 2.0, 3.0]))
        loss = paddle.sum(paddle.multiply(paddle.sum(value, axis=1), paddle.cast(largest, "float32")))
        stages = cut(program, [0, 0, 1, 1, 1, 1], loss.name)

        assert set(stages[0].handed) == {largest.name, value.name}
        assert set(stages[1].outgoing) == {value.name}


def test_what_follows_the_loss_has_no_backward() -> None:
    """A stage after the loss computes fetches only."""
    with static() as (program, _, _):
        names = skipping()
        twice = paddle.scale(program.global_block().var(names[-1]), 2.0)
        stages = cut(program, [0, 0, 0, 0, 0, 1], names[-1], fetches=(twice.name,))

        assert stages[1].backward == ()
        assert stages[1].outgoing == {}
        assert set(stages[0].gradients) == {"a", "b"}


def test_without_a_loss_nothing_goes_backwards() -> None:
    """Inference has no backward ops and stashes nothing."""
    with static() as (program, _, _):
        names = skipping()
        stages = partition.cut(program, [0, 0, 1, 1, 1], 2, feeds=("x",), fetches=(names[-1],))

        assert [stage.backward for stage in stages] == [(), ()]
        assert [stage.stash for stage in stages] == [(), ()]


def test_a_stash_holds_what_changes_between_forward_and_backward() -> None:
    """Weights are read as they are; shapes without memory stay where they are."""
    with static() as (program, _, _):
        x = paddle.static.data("x", [2, 3], "float32")
        value = paddle.reshape(paddle.multiply(x, parameter("a", [1.0, 2.0, 3.0])), [6])
        loss = paddle.sum(paddle.square(value))
        (stage,) = cut(program, [0] * 4, loss.name)
        made = stage.forward[1].output("XShape")[0]

        assert "a" not in stage.stash
        assert {"x", value.name} <= set(stage.stash)
        assert stage.shapes == (made,)
        assert made not in stage.stash


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_the_loss_scale_is_where_backward_begins(scale: float) -> None:
    """The gradient of the loss is the loss scale."""
    with static() as (program, _, _):
        names = skipping()
        stages = cut(program, [0] * 5, names[-1], loss_scale=scale)
        gradients = _gradients(stages, np.ones((2, 3), np.float32))
        single = _gradients(cut(program, [0] * 5, names[-1]), np.ones((2, 3), np.float32))

        for name, value in single.items():
            np.testing.assert_array_equal(gradients[name], value * np.float32(scale))


@at_most(12)
@given(st.lists(st.integers(0, 1), min_size=4, max_size=4), st.integers(0, 2**16))
def test_a_cut_changes_no_bit(steps: List[int], seed: int) -> None:
    """However a program with skips is cut, its gradients are those of the whole."""
    stage_of = [0, *np.cumsum(steps).tolist()]
    x = np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)
    with static() as (program, _, _):
        loss = skipping()[-1]
        whole = _gradients(cut(program, [0] * 5, loss), x)
        parts = _gradients(cut(program, stage_of, loss), x)

        assert sorted(parts) == sorted(whole) == ["a", "b"]
        for name, value in whole.items():
            np.testing.assert_array_equal(parts[name], value)


def _gradients(stages: Sequence[Stage], x: np.ndarray) -> Any:
    """The gradients that a machine computes for one micro-batch; the plan stops short of an update."""
    raw = {weight: name for stage in stages for weight, name in stage.gradients.items()}
    programs = Programs(stages, None, raw=raw)
    machine = PaddleMachine(programs, 1, strategy=IpuStrategy())
    machine.load({"a": np.array([1.0, 2.0, 3.0], np.float32), "b": np.array([0.5, 1.5, 2.5], np.float32)})
    plan = planning.plan(Topology(tuple(range(len(stages)))), "sequential", 1)
    found = {}

    def update(replica: int, stage: int, gradients: Any) -> None:
        found.update({name: np.array(value) for name, value in machine.gradients(replica, stage).items()})

    machine.update = update  # type: ignore[method-assign]
    machine.begin([[{"x": x}]])
    with scopes.in_order(), Engine(plan, machine) as engine:
        engine.run(machine.inputs)
    return found


def test_taken_tensors_are_not_written_to() -> None:
    """A tensor that was moved out of a scope keeps its values when the next run writes the variable."""
    cells = scopes.VariableScope(core.Scope())
    cells.put({"v": np.array([1.0, 2.0], np.float32)})
    taken = cells.take(["v"])
    cells.put({"v": np.array([3.0, 4.0], np.float32)})

    assert np.array(taken["v"]).tolist() == [1.0, 2.0]
    assert np.array(cells["v"]).tolist() == [3.0, 4.0]


def test_the_flags_of_the_process_come_back() -> None:
    """Running in order changes Paddle's flags only inside, also when a run fails."""
    flags = core.globals()
    names = ["FLAGS_new_executor_serial_run", "FLAGS_new_executor_sequential_run", "FLAGS_check_nan_inf"]
    before = [flags[name] for name in names]
    inside: List[bool] = []

    def fail() -> None:
        with scopes.in_order(checked=True):
            inside.extend(flags[name] for name in names)
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    assert inside == [True] * 3
    assert [flags[name] for name in names] == before
