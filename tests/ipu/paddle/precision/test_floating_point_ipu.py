"""Floating-point checks: where they are on, a NaN or an infinity stops the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from .. import exact
from ..device import Device
from ..exact import counts


def logarithm(paddle: Any, *, checked: bool, config: RunConfig = exact.ONE) -> Device:
    """A compiled program that takes logarithms."""
    x = paddle.static.data("x", [None, 2], "float32")
    return exact.inference(paddle, paddle.log(x), config=config, enable_floating_point_checks=checked)


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("second", [-1.0, 0.0], ids=["invalid", "infinite"])
def test_a_check_stops_the_run(paddle: Any, static: Any, second: float, checked: bool) -> None:
    """With enable_floating_point_checks a NaN or an infinity is an error; by default it is fetched."""
    device = logarithm(paddle, checked=checked)
    x = np.array([[1.0, second]], np.float32)

    if checked:
        with check.raises(RuntimeError, what=f"the logarithm of {second}"):
            device.run(x)
    else:
        (out,) = device.run(x)
        finite = np.isfinite(out).tolist()
        check.equal(actual=finite, expected=[[True, False]], what=f"whether the logarithms of {x} are finite")
        check.equal(actual=out[0, 0], expected=0.0, what="the logarithm of 1")


def test_every_micro_batch_is_checked(paddle: Any, static: Any) -> None:
    """The last micro-batch of the last replica is checked too."""
    config = counts(2, 4, 3)
    device = logarithm(paddle, checked=True, config=config)
    x = np.ones((config.micro_batches, 2), np.float32)
    device.run(x)
    x[-1, -1] = -1.0

    with check.raises(RuntimeError, what="a NaN in the last micro-batch"):
        device.run(x)


def test_numbers_pass_the_checks(paddle: Any, static: Any) -> None:
    """Checks change no result."""
    values = np.array([[1.0, 3.0]], np.float32)
    (checked,) = logarithm(paddle, checked=True).run(values)
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        (free,) = logarithm(paddle, checked=False).run(values)

    check.identical(actual=checked, expected=free, what="the logarithm")
    check.equal(actual=checked[0, 0], expected=0.0, what="the logarithm of 1")
