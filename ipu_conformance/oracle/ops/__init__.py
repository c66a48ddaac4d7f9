"""The operations, a file per family; importing this package fills ``OPS``.

Layout is that of PopTorch and Paddle: images are (batch, channel, *space), kernels (out, in / groups, *space).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from ipu_conformance.oracle.op import OPS

for _family in iter_modules(__path__):
    import_module(f"{__name__}.{_family.name}")

__all__ = ["OPS"]
