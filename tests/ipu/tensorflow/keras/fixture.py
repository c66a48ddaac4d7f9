"""The fixture that builds and trains the suite's nets as Keras models."""

from __future__ import annotations

from typing import Any

import pytest

from .nets import Keras


@pytest.fixture(name="keras")
def made_keras(tf: Any, ipu: Any, configure: Any) -> Keras:
    """Builds and trains the suite's nets."""
    return Keras(tf, ipu, configure)
