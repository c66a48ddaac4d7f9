"""Faults: the registry, and for each fault a case of the suite that notices it."""
