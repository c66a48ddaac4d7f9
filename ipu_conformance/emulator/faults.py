"""Named, injectable ways for the emulated device to be wrong."""
