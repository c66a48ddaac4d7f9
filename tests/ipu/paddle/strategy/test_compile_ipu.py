"""Compiling: what it needs, how often it is done, and which of several programs the device holds."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import Chain, Device, counts


def scaling(paddle: Any, factor: float) -> Chain:
    """A separate program that multiplies by a constant."""
    static = paddle.static
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 2], "float32")
        return Chain(main, startup, x * factor, x, ())


@pytest.mark.emulator
def test_the_device_holds_the_last_program_only(paddle: Any, static: Any) -> None:
    """A program that another one has replaced runs again only when it is compiled again."""
    chosen = exact.strategy(paddle, training=False)
    first, second = scaling(paddle, 2.0), scaling(paddle, 4.0)
    replaced = Device(paddle, first, chosen, [first.out])
    Device(paddle, second, chosen, [second.out])

    with check.raises(RuntimeError, match="compile this program again", what="a program that was replaced"):
        replaced.run(exact.samples(1))


def test_training_and_inference_alternate(paddle: Any, static: Any) -> None:
    """An inference program sees what was trained and brought home, and training goes on after it."""
    training = exact.chain(paddle)
    testing = training._replace(main=training.main.clone(for_test=True)._prune([training.out]))
    x = exact.samples(1)
    for run in range(1, 4):
        trained = Device(paddle, training, exact.strategy(paddle))
        trained.run(x)
        trained.sync()
        (out,) = Device(paddle, testing, exact.strategy(paddle, training=False), [testing.out]).run(x)
        expected = exact.plain_run(np.concatenate([x] * run), counts(run)).weights["w0"]

        check.identical(actual=out, expected=x * expected, what=f"the output after run {run}")


@pytest.mark.emulator
def test_a_changed_strategy_needs_a_compilation(paddle: Any, static: Any) -> None:
    """Options other than lr are read when compiling; a program that was compiled before keeps its options."""
    chosen = exact.strategy(paddle, counts(2), training=False)
    device = Device(paddle, exact.chain(paddle, training=False), chosen)
    chosen.set_options({"batches_per_step": 3})
    out, _ = device.run(exact.samples(2))
    again, _ = Device(paddle, device.chain, chosen).run(exact.samples(3))

    check.shape(actual=out, expected=(2, 1, 2), what="the output before")
    check.shape(actual=again, expected=(3, 1, 2), what="the output after")


def test_weights_must_be_initialized(paddle: Any, static: Any) -> None:
    """A weight that the scope does not hold is named."""
    net = exact.chain(paddle, training=False)

    with check.raises(RuntimeError, match="w0", what="a program without its weights"):
        exact.inference(paddle, net.out)


@pytest.mark.parametrize("config", [counts(), counts(2, 4, 3)], ids=counts_id)
def test_compile_only_skips_the_run(
    paddle: Any, static: Any, monkeypatch: pytest.MonkeyPatch, config: RunConfig
) -> None:
    """With IPU_COMPILE_ONLY a run computes nothing: weights stay, and there may be nothing to fetch."""
    monkeypatch.setenv("IPU_COMPILE_ONLY", "1")
    device = Device(paddle, exact.chain(paddle), exact.strategy(paddle, config))
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")  # a target may say that it runs nothing
        device.run(exact.samples(config.micro_batches))

    check.identical(actual=device.synced_weights()["w0"], expected=exact.START, what="the weight")


@pytest.mark.emulator
def test_a_detached_device_runs_nothing(paddle: Any, static: Any) -> None:
    """After detach a program is compiled again before it runs."""
    device = Device(paddle, exact.chain(paddle), exact.strategy(paddle))
    device.backend.detach()

    with check.raises(RuntimeError, match="detached", what="a run on a detached device"):
        device.run(exact.samples(1))


def test_a_program_without_weights_runs(paddle: Any, static: Any) -> None:
    """Constants need no scope."""
    x = static.data("x", [None, 2], "float32")
    constant = paddle.full([2], 0.5) + paddle.assign(np.array([1.0, 3.0], np.float32))
    (out,) = exact.inference(paddle, x * constant, config=counts(3)).run(exact.samples(3))
    expected = exact.samples(3) * np.array([1.5, 3.5], np.float32)

    check.identical(actual=out.reshape(3, 2), expected=expected, what="the output")
