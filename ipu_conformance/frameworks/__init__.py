"""One driver per framework: builds a net from NumPy weights, trains it for a RunConfig, returns a RunRecord."""
