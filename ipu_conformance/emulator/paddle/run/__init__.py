"""Execution: the executor, its machine, feeds, fetches and random state."""
