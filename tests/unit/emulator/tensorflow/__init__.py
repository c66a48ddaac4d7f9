"""Tests of what lies inside the emulated TensorFlow."""
