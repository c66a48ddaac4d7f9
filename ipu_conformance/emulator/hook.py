"""The import hook: the vendors' module names lead to the emulator's front ends.

It is installed only when the target is the emulator, and never over a real SDK unless the emulator was named.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Dict, Mapping, Optional, Sequence

ALIASES: Mapping[str, Mapping[str, str]] = {
    "poptorch": {"poptorch": "ipu_conformance.emulator.poptorch"},
}
"""The front ends: for each framework, which vendor name leads to which of our packages."""


class AliasFinder(importlib.abc.MetaPathFinder):
    """Finds a vendor's module, and what lies below it, in one of our packages; both names give the same object."""

    def __init__(self) -> None:
        self.aliases: Dict[str, str] = {}

    def real_name(self, fullname: str) -> Optional[str]:
        """The name in our package that ``fullname`` stands for, None if it is none of ours."""
        for vendor, ours in self.aliases.items():
            if fullname == vendor or fullname.startswith(vendor + "."):
                return ours + fullname[len(vendor) :]
        return None

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """The spec of an aliased module."""
        real = self.real_name(fullname)
        if real is None or importlib.util.find_spec(real) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, _AliasLoader(real), is_package=True)


class _AliasLoader(importlib.abc.Loader):
    """Loads the real module and leaves its own spec in place."""

    def __init__(self, real: str) -> None:
        self.real = real
        self.own_spec: Optional[importlib.machinery.ModuleSpec] = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.real)
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just put the alias' spec on the module; relative imports inside need its own.
        module.__spec__ = self.own_spec


_FINDER = AliasFinder()


def alias(names: Mapping[str, str]) -> None:
    """Let each vendor name lead to our module from now on."""
    _FINDER.aliases.update(names)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def install(framework: str) -> None:
    """Make the vendor's API of ``framework`` importable under its own names; nothing is imported yet."""
    alias(ALIASES[framework])


def uninstall() -> None:
    """Forget every alias; modules that were imported through one are dropped from ``sys.modules``."""
    for name in [name for name in sys.modules if _FINDER.real_name(name) is not None]:
        del sys.modules[name]
    _FINDER.aliases.clear()
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
