"""The operations, a file per family in four folders; importing this package fills ``OPS``.

Layout is that of PopTorch and Paddle: images are (batch, channel, *space), kernels (out, in / groups, *space).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from ipu_conformance.oracle.op import OPS

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)

__all__ = ["OPS"]
