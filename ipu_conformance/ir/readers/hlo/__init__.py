"""The reader of XLA's HLO text."""
