"""What the vendor's PopTorch raises."""

from __future__ import annotations


class Error(Exception):
    """Any error of the framework."""
