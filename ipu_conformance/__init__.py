"""A conformance suite for IPU-like accelerators: does this device train the way the specification says?"""

__version__ = "0.1.0"
