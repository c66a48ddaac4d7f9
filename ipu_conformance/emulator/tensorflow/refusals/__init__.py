"""What the emulated TensorFlow refuses, a module for each room of it."""
