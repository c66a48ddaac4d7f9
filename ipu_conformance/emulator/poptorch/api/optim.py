"""``poptorch.optim``."""

from ipu_conformance.emulator.poptorch.optim.optimizers import (
    LAMB,
    SGD,
    Adam,
    AdamW,
    Optimizer,
    RMSprop,
    VariableAttributes,
)

__all__ = ["LAMB", "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "VariableAttributes"]
