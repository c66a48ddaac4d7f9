"""Calls of ops on a device, many in one program (``bench``), and their comparison with the oracle (``judge``)."""
