"""Ways for the emulated TensorFlow to be wrong."""
