"""The tests of the library itself."""
