"""The compiled program as PopART IR, and what is written of it to files."""
