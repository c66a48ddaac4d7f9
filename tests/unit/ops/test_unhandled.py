"""A device that takes what an IPU build of Paddle has handlers for is asked for nothing else."""

from __future__ import annotations

from typing import Any, List, Sequence, Set

import pytest

from ipu_conformance import frameworks
from ipu_conformance.emulator.paddle.compile.handlers import handlers
from ipu_conformance.frameworks import OpCall
from ipu_conformance.ops import TABLE
from ipu_conformance.ops.cases import OpCase
from ipu_conformance.ops.unhandled import UNHANDLED
from ipu_conformance.oracle.sample import Sample
from ipu_conformance.trials.bench import Bench

EDGES = ("drawn", "size-one")
WHOLE = sorted(op for op, rule in UNHANDLED.items() if rule.whole)
PARTLY = sorted(set(UNHANDLED) - set(WHOLE))


class _Listening:
    """The driver of Paddle, which hears of calls and makes none."""

    def __init__(self) -> None:
        self._driver = frameworks.load("paddle")
        self.calls: List[OpCall] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def run_ops(self, calls: Sequence[OpCall], dtype: str) -> List[None]:
        self.calls += calls
        return [None] * len(calls)


def _asked(names: Sequence[str], *, every: bool) -> _Listening:
    device: Any = _Listening()
    rows = [(TABLE[name], edge) for name in names for edge in EDGES]
    bench = Bench("paddle", device, "float32", rows, every=every)
    for row, edge in rows:
        bench.trials(row, edge)
    return device


def _types(call: OpCall) -> Set[str]:
    """The ops of Paddle's that a call becomes."""
    from ipu_conformance.frameworks.paddle import ops

    with ops._program() as (main, _):
        ops._write(call, 0, "float32")
        return {op.type for op in main.global_block().ops}


def _is_unhandled(name: str, call: OpCall) -> bool:
    return UNHANDLED[name].when(Sample(call.inputs[0], call.attributes))


def test_every_op_that_a_device_is_asked_for_has_a_handler() -> None:
    """No call of the table becomes an op without a handler, unless the emulator alone is asked for it."""
    asked = [name for name, row in TABLE.items() if row.missing("paddle") is None and name not in WHOLE]
    strangers = {(kind, str(call.attributes)) for call in _asked(asked, every=False).calls for kind in _types(call)}

    assert {stranger for stranger in strangers if stranger[0] not in handlers()} == set()


@pytest.mark.parametrize("name", PARTLY)
def test_calls_that_are_not_taken_are_left_out(name: str) -> None:
    """A device is asked for calls of the op, the emulator also for those that no handler takes."""
    of_device, of_emulator = (_asked([name], every=every).calls for every in (False, True))
    beyond = [any(_is_unhandled(name, call) for call in calls) for calls in (of_device, of_emulator)]

    assert of_device
    assert beyond == [False, True]


@pytest.mark.parametrize("name", WHOLE)
def test_an_op_that_is_not_taken_is_asked_of_the_emulator(name: str) -> None:
    """None of its calls is taken on Paddle, and all are on other frameworks."""
    case = OpCase("paddle", TABLE[name], "float32", "forward", "drawn")

    assert case.unhandled == UNHANDLED[name].reason
    assert _asked([name], every=False).calls == []
    assert not case._replace(framework="poptorch").unhandled
