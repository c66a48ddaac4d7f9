"""The emulated PopTorch: what a program gets for ``import poptorch`` when the target is the emulator."""
