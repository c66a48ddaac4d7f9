"""Compilation: capture, blocks, placement and the cut into stages."""
