"""Cases of Keras models on an IPU."""
