"""Optimizers: the classes users see, and the update that the device executes."""
