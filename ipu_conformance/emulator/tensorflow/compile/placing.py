"""Building a program only to learn which IPUs it names: how many replicas it has is not known yet."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.compile import shards


def placing() -> bool:
    """Whether this thread builds for that; what replicas do together then has the right shape and no meaning."""
    return bool(shards._here.open)
