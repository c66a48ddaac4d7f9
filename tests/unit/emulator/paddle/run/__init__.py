"""Tests of running: feeds, execution, random numbers, the model runtime and poprun."""
