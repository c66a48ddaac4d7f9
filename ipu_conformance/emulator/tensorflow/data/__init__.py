"""Data sets of the vendor; their modules are imported when they are first asked for."""
