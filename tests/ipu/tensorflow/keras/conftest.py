"""What the cases of Keras share."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from .nets import Keras


@pytest.fixture(scope="session")
def records() -> Dict[Any, Any]:
    """What the cases have run so far; it ends with the session, so that a case under a fault runs again."""
    return {}


@pytest.fixture
def keras(tf: Any, ipu: Any, configure: Any, records: Dict[Any, Any]) -> Keras:
    """Builds and trains the suite's nets as Keras models."""
    return Keras(tf, ipu, configure, records)
