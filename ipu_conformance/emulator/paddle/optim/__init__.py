"""Optimizer ops, split by the stage that owns each weight."""
