"""Models of a strategy's scope get their methods when they are made; there is nothing to register."""
