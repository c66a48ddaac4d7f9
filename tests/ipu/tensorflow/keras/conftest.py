"""What the cases of Keras share."""

from __future__ import annotations

from typing import Any

import pytest

from .nets import Keras


@pytest.fixture
def keras(tf: Any, ipu: Any, configure: Any) -> Keras:
    """Builds and trains the suite's nets as Keras models."""
    return Keras(tf, ipu, configure)
