"""Keras models on the device: stages, feeding, execution and callbacks."""
