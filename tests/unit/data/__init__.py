"""Tests of the data sets: reading, hostile files, places, fetching, verifying and the synthetic sets."""
