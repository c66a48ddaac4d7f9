"""The Keras layers that the device has operations of its own for."""
