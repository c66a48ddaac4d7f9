"""Tests of compiling: sessions, placement, partition, passes and precision."""
