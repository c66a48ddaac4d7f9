"""What every refusal has in common."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Type

import pytest

from ipu_conformance.errors import ConformanceError


@contextmanager
def refused(error: Type[Exception], said: str) -> Iterator[None]:
    """The block is refused with an error of the project, whose one line holds ``said``."""
    with pytest.raises(error) as caught:
        yield

    assert said in str(caught.value)
    assert isinstance(caught.value, ConformanceError)
    assert "\n" not in str(caught.value)
