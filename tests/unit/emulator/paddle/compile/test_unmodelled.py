"""Options without an effect are known, and a strategy that sets one says so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import ipu_conformance.emulator.paddle as front_end
from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.compile import sessions, unmodelled
from ipu_conformance.emulator.paddle.compile.options import OPTIONS, UINT64, VECTOR

DERIVED = {"enable_half_partial", "virtual_graph_mode"}
"""Options that are another option, too, which is the one that is read or named."""


def another(name: str) -> Any:
    """A value that is not the default."""
    option = OPTIONS[name]
    if option.type == UINT64:
        return 1 - option.default if option.members else option.default + 1
    if isinstance(option.default, bool):
        return not option.default
    if isinstance(option.default, float):
        return option.default + 0.5
    if isinstance(option.default, str):
        return "other"
    return ["other"] if option.type == VECTOR else {"other": "one"}


@pytest.fixture(autouse=True)
def unsaid() -> None:
    """Every sentence can be said again."""
    unmodelled._log.cache_clear()


def test_an_option_is_read_or_named_as_without_effect() -> None:
    """Each option is asked for somewhere in the front end, or stands in the table; never both."""
    folder = Path(front_end.__file__).parent
    own = {"options.py", "unmodelled.py", "strategy_options.py"}
    texts = [file.read_text(encoding="utf-8") for file in folder.rglob("*.py") if file.name not in own]
    read = {name for name in OPTIONS if any(f'value("{name}")' in text or f'"{name}",' in text for text in texts)}

    assert set(OPTIONS) - set(unmodelled.WITHOUT_EFFECT) - read - DERIVED == set()
    assert set(unmodelled.WITHOUT_EFFECT) <= set(OPTIONS)
    assert [name for name in unmodelled.WITHOUT_EFFECT if any(f'value("{name}")' in text for text in texts)] == []


@pytest.mark.parametrize("name", unmodelled.WITHOUT_EFFECT)
def test_setting_an_option_without_effect_is_said_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log names it and the reason, as a warning where values may differ; a second compile is silent."""
    strategy = IpuStrategy()
    strategy.set_options({name: another(name)})
    with caplog.at_level(logging.INFO, unmodelled.logger.name):
        sessions.begin(strategy)
        sessions.begin(strategy)
    (record,) = caplog.records

    why = unmodelled.WITHOUT_EFFECT[name]
    assert record.getMessage() == f"the option {name} has no effect on the emulator: {why}"
    assert record.levelno == (logging.WARNING if name in unmodelled.WRONG_VALUES else logging.INFO)


def test_defaults_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    """A new strategy, and one whose modelled options are set, says nothing."""
    strategy = IpuStrategy()
    strategy.set_options({"loss_scaling": 2.0, "enable_half_partial": False})
    with caplog.at_level(logging.INFO, unmodelled.logger.name):
        sessions.begin(IpuStrategy())
        sessions.begin(strategy)

    assert caplog.records == []
