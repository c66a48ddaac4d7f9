"""Tolerances, derived from number formats and from random rounding."""
