"""The reader of TensorFlow's graphs."""
