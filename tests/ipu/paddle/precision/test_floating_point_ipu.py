"""Floating-point checks: results that are no numbers stop a run where they are asked to."""

from __future__ import annotations

from typing import Any, List

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .. import exact
from ..exact import Chain, Device, counts


def logarithm(paddle: Any, *, checked: bool, config: RunConfig = exact.ONE) -> Device:
    """A program that takes logarithms, compiled."""
    static = paddle.static
    x = static.data("x", [None, 2], "float32")
    made = Chain(static.default_main_program(), static.default_startup_program(), paddle.log(x), x, ())
    chosen = exact.strategy(paddle, config, training=False, enable_floating_point_checks=checked)
    return Device(paddle, made, chosen, [made.out])


@pytest.mark.parametrize("values", [[1.0, -1.0], [1.0, 0.0]], ids=["invalid", "infinite"])
def test_a_check_stops_the_run(paddle: Any, static: Any, values: List[float]) -> None:
    """With enable_floating_point_checks an op that makes a NaN or an infinity is an error."""
    device = logarithm(paddle, checked=True)

    with check.raises(RuntimeError, match="Floating point exception.*log", what="the logarithm of no positive number"):
        device.run(np.array([values], np.float32))


@pytest.mark.parametrize("values", [[1.0, -1.0], [1.0, 0.0]], ids=["invalid", "infinite"])
def test_without_checks_a_run_goes_on(paddle: Any, static: Any, values: List[float]) -> None:
    """By default what is no number is fetched as it is."""
    (out,) = logarithm(paddle, checked=False).run(np.array([values], np.float32))

    assert not np.isfinite(out[0, 1])
    assert out[0, 0] == 0.0


def test_every_micro_batch_is_checked(paddle: Any, static: Any) -> None:
    """The last micro-batch of the last replica is looked at too."""
    config = counts(2, 4, 3)
    device = logarithm(paddle, checked=True, config=config)
    x = np.ones((config.micro_batches, 2), np.float32)
    device.run(x)
    x[-1, -1] = -1.0

    with check.raises(RuntimeError, match="Floating point exception", what="a NaN in the last micro-batch"):
        device.run(x)


def test_numbers_pass_the_checks(paddle: Any, static: Any) -> None:
    """Checks change no result."""
    values = np.array([[1.0, 2.0]], np.float32)
    (checked,) = logarithm(paddle, checked=True).run(values)
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        (free,) = logarithm(paddle, checked=False).run(values)

    check.identical(actual=checked, expected=free, what="the logarithm")
