"""What the vendor's PopTorch raises."""

from __future__ import annotations

PYTHON_ERROR = "poptorch_py_error"
"""The ``type`` of an error that is found before anything reaches the device."""


class Error(Exception):
    """Any error of the framework: what happened, which part of the stack it comes from, and where it was raised."""

    def __init__(self, message: object = "", type: str = PYTHON_ERROR, location: str = "") -> None:
        # All of it is in ``args``, so that an error survives pickling between processes.
        super().__init__(message, type, location)
        self.message = str(message)
        self.type = type
        self.location = location

    def __str__(self) -> str:
        where = f"In {self.location}: " if self.location else ""
        return f"{where}'{self.type}': {self.message}"


class RecoverableError(Error):
    """An error that a reset cures; ``recovery_action`` says which one."""

    def __init__(
        self, message: object = "", type: str = PYTHON_ERROR, location: str = "", recovery_action: str = ""
    ) -> None:
        super().__init__(message, type, location)
        self.args = (*self.args, recovery_action)
        self.recovery_action = recovery_action


class UnrecoverableError(Error):
    """An error of the system that no reset cures."""


def createPoptorchError(msg: str) -> Error:
    """The error of the Python layer with this message."""
    return Error(msg)


class ConfigFileError(Exception):
    """A file of options, or JSON, cannot be applied; the message names the place and the line."""
