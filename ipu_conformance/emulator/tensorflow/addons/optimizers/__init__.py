"""Optimizers for programs without Keras: the vendor's package has none."""
