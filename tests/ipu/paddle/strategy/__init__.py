"""Cases of the strategy, compiled programs and feeding."""
