"""Compilation: passes, placement, precision and the cut into stages."""
