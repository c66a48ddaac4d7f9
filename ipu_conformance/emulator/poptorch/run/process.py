"""What PopTorch does as it is imported and as a program ends."""

from __future__ import annotations

import importlib.util

from ipu_conformance.emulator.poptorch.options.diagnostics import Error


def poptorchAtExit() -> None:
    """Release devices as the program ends; those of the emulator end with its process."""


def registerGeometricCustomArgParsers() -> None:
    """Let models be called with the batches of PyTorch Geometric; without that package there is nothing to do."""
    if importlib.util.find_spec("torch_geometric") is not None:
        raise Error(
            "The emulator does not take the batches of PyTorch Geometric apart: register a parser of your own with "
            "poptorch.registerCustomArgParser"
        )
