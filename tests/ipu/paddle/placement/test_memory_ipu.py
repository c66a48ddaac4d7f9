"""Programs that are larger than the memory of an IPU."""

from __future__ import annotations

from typing import Any, Dict

import numpy as np
import pytest

from ipu_conformance import check

from .. import exact

LARGE = 20_000
"""The rows and columns of a weight of 1.5 GiB; an IPU has 0.9."""


def compile_large(paddle: Any, *, batch: int, hidden: int, ipus: int = 1, **options: Any) -> None:
    """Compile two linear layers without making their weights."""
    static = paddle.static
    x = static.data("x", [batch, hidden], "float32")
    value = x
    for number in range(2):
        with static.ipu_shard_guard(index=number if ipus > 1 else -1):
            weight = static.create_parameter([hidden, hidden], "float32", name=f"w{number}")
            value = paddle.matmul(value, weight)
    chosen = exact.strategy(paddle, ipus=ipus, training=False, **options)
    compiled = static.IpuCompiledProgram(static.default_main_program(), scope=static.Scope(), ipu_strategy=chosen)
    compiled.compile(["x"], [value.name])


@pytest.mark.emulator
@pytest.mark.parametrize(
    "sizes", [{"batch": 1, "hidden": LARGE}, {"batch": 2_000_000, "hidden": 64}], ids=["weights", "activations"]
)
def test_what_does_not_fit_is_refused(paddle: Any, static: Any, sizes: Dict[str, int]) -> None:
    """A program whose weights or activations exceed the memory of an IPU is not compiled."""
    with check.raises(RuntimeError, match="[Oo]ut of memory", what="a program that is too large"):
        compile_large(paddle, **sizes)


@pytest.mark.emulator
def test_each_ipu_is_looked_at(paddle: Any, static: Any) -> None:
    """What does not fit one IPU fits two that have half of it each; only the weights are missing then."""
    with check.raises(RuntimeError, match="w0 is not initialized", what="a program that fits"):
        compile_large(paddle, batch=1, hidden=12_000, ipus=2)


@pytest.mark.emulator
def test_one_ipu_cannot_hold_what_two_hold(paddle: Any, static: Any) -> None:
    """The same program is refused on one IPU."""
    with check.raises(RuntimeError, match="[Oo]ut of memory", what="a program that is too large"):
        compile_large(paddle, batch=1, hidden=12_000)


@pytest.mark.emulator
@pytest.mark.filterwarnings(r"ignore:The Attr\(force_cpu\)")  # Paddle's advice against what it does itself
def test_what_has_no_size_yet_stops_nothing(paddle: Any, static: Any) -> None:
    """A range gets its length when the program runs, and is not refused because the compiler cannot count it.

    An IPU build has no handler for ranges.
    """
    x = static.data("x", [3], "float32")
    out = x * paddle.cast(paddle.arange(1, 7, 2), "float32")
    (fetched,) = exact.inference(paddle, out).run(np.array([0.5, 0.25, 2.0], np.float32))

    check.identical(actual=fetched, expected=np.array([0.5, 0.75, 10.0], np.float32), what="the output")
