"""Tests of the graphs that Paddle programs become."""
