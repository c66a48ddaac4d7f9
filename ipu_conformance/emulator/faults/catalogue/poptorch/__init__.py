"""Ways for the emulated PopTorch to be wrong."""
