"""Cases of the configuration, the modules and what surrounds a program."""
