"""The emulated PopTorch; ``api`` is what a program gets for ``import poptorch``."""
