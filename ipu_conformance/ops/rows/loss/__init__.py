"""Losses: of values and of classes; where a framework has none, its own functions, sums and means make it."""
