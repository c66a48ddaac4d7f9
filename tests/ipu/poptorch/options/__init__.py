"""Cases of the options, the enumerations and the module's names."""
