"""A failed case as a program of its own, which needs neither pytest nor a fixture: what the case needs of the suite."""
