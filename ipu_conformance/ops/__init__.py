"""The suite's op table: a row an op, a module a family in ``rows``; importing this package fills ``TABLE``."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import ipu_conformance.oracle.ops  # noqa: F401  rows name its ops
from ipu_conformance.errors import Inexpressible
from ipu_conformance.ops import rows
from ipu_conformance.ops.row import TABLE, Missing, Row, TableError

for _module in walk_packages(rows.__path__, f"{rows.__name__}."):
    import_module(_module.name)

__all__ = ["TABLE", "Inexpressible", "Missing", "Row", "TableError"]
