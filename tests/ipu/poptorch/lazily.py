"""PyTorch and PopTorch, imported when they are first used: collecting the suite imports no framework."""

from __future__ import annotations

import importlib
from typing import Any


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks at every name of a module for fixtures and tests
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


torch: Any = _Module("torch")
poptorch: Any = _Module("poptorch")
functional: Any = _Module("torch.nn.functional")
