"""Cases of what a model is fed and what it returns."""
