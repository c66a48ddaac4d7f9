"""The runs of models belong to a session: what another one has made, on another device, is not theirs."""

from __future__ import annotations

from typing import Iterator

import pytest

from . import rows


@pytest.fixture(scope="session", autouse=True)
def _own_runs() -> Iterator[None]:
    yield
    rows.RECORDS.clear()
