"""Cases of the IR dump, the trace and the cycle count."""
