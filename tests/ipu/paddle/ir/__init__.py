"""Cases of the IR, its passes, dumps and the trace."""
