"""What the cases of PopTorch share."""

from __future__ import annotations

import importlib
import warnings
from typing import Any, Callable, Iterator

import pytest


@pytest.fixture
def poptorch() -> Any:
    """The vendor's package, or whatever the target puts in its place."""
    return importlib.import_module("poptorch")


@pytest.fixture
def torch() -> Any:
    """PyTorch, imported when a case runs: collecting the suite imports no framework."""
    return importlib.import_module("torch")


@pytest.fixture
def said(
    poptorch: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[[], str]]:
    """All that the user was told since the case began: warnings, log lines and printed text."""
    with warnings.catch_warnings(record=True) as caught, caplog.at_level("WARNING"):
        warnings.simplefilter("always")

        def text() -> str:
            printed = capfd.readouterr()
            return "\n".join([*(str(item.message) for item in caught), caplog.text, printed.out, printed.err])

        yield text
