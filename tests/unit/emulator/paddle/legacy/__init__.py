"""Tests of the names that Paddle had before 2.5."""
