"""The emulated IPU build of TensorFlow; ``api`` is what a program gets for ``tensorflow.python.ipu``."""
