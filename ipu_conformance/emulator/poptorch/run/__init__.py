"""Execution: the executor, its machine, weights, micro-batches, outputs and random state."""
