"""What the emulated TensorFlow refuses, a module a room."""
