"""Models of the kinds that people train, on every framework."""
