"""Tests of what the compiler makes of optimizers."""
