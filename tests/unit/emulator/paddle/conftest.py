"""What the tests of Paddle's emulated device share."""

from __future__ import annotations

from typing import Iterator

import paddle
import pytest

from ipu_conformance.emulator import hook


@pytest.fixture
def ipu_build() -> Iterator[None]:
    """Paddle as an IPU build, whose device holds nothing afterwards."""
    hook.install("paddle")
    yield
    paddle.base.core.IpuBackend.get_instance().reset()
