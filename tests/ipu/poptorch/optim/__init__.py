"""Cases of the optimizers."""
