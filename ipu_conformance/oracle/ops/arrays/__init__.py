"""Ops that move, select and order elements."""
