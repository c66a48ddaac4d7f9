"""The operations that PopTorch adds to torch's."""
