"""A tolerance with a reason and the sentence of a failure, for tests of the checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional

import pytest

from ipu_conformance import check


@dataclass(frozen=True)
class Reasoned:
    """A tolerance that gives its reason; what the checks need, and no more."""

    allowed: Any
    reason: str = "half a step"
    allowed_rms: Optional[float] = None

    def explain(self) -> str:
        return self.reason


@pytest.fixture
def half() -> Reasoned:
    """Allows a difference of one half."""
    return Reasoned(0.5)


@pytest.fixture
def reasoned() -> type:
    """Makes tolerances that give their reason."""
    return Reasoned


def sentence(call: Callable[..., Any], *values: Any, **arguments: Any) -> str:
    """The message with which a check fails."""
    with pytest.raises(check.CheckFailure) as caught:
        call(*values, **arguments)
    return str(caught.value)
