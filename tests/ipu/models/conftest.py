"""The cases of models share runs as those of training do."""

from __future__ import annotations

from ..training.conftest import runs  # noqa: F401  a fixture
