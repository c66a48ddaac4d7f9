"""Cases of a wrapped model's life: weights, buffers, saving."""
