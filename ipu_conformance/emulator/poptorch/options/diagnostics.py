"""What PopTorch tells its user: the vendor's exceptions, and the log with its levels and destination.

``POPTORCH_LOG_LEVEL`` names the level and ``POPTORCH_LOG_DEST`` the destination: stdout, stderr or a file.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from typing import Any, Callable, Dict, Mapping, Optional, TypeVar, Union

LEVEL_VARIABLE, DESTINATION_VARIABLE = "POPTORCH_LOG_LEVEL", "POPTORCH_LOG_DEST"
DEFAULT_LEVEL = "WARN"

TRACE = 5
OFF = logging.CRITICAL + 10
LEVELS: Mapping[str, int] = {
    "TRACE_ALL": TRACE,
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": OFF,
}
NUMBERS: Mapping[int, str] = {0: "TRACE", 1: "DEBUG", 2: "INFO", 3: "WARN", 4: "ERR", 6: "OFF"}
_SPELLING = {TRACE: "trace", logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}

Function = TypeVar("Function", bound=Callable[..., Any])

logger = logging.getLogger("poptorch::python")


class _Formatter(logging.Formatter):
    """Lines such as ``[10:11:12.345] [poptorch:python] [warning] text``."""

    def format(self, record: logging.LogRecord) -> str:
        time = f"{self.formatTime(record, '%H:%M:%S')}.{int(record.msecs):03d}"
        return f"[{time}] [poptorch:python] [{_SPELLING.get(record.levelno, 'error')}] {record.getMessage()}"


class _Destination(logging.StreamHandler):
    """Writes to the standard stream of the moment, so that one that was redirected later is used too."""

    def __init__(self, name: str) -> None:
        logging.Handler.__init__(self)
        self.stream_name = name
        self.setFormatter(_Formatter())

    @property
    def stream(self) -> Any:
        return getattr(sys, self.stream_name)


def setLogLevel(level: Union[str, int]) -> None:
    """Log lines of this level and above: TRACE, DEBUG, INFO, WARN, ERR, OFF, or 0, 1, 2, 3, 4, 6."""
    name = NUMBERS.get(level) if isinstance(level, int) else str(level).upper()
    if name is None or name not in LEVELS:
        numbers = ", ".join(f"{number} ({text})" for number, text in NUMBERS.items())
        raise ValueError(f"Invalid log level {level!r}: must be one of {', '.join(LEVELS)} or {numbers}")
    logger.setLevel(LEVELS[name])


def configure_log(environment: Mapping[str, str] = os.environ) -> None:
    """Take the level and the destination from the environment."""
    destination = environment.get(DESTINATION_VARIABLE, "stderr")
    handler: logging.Handler
    if destination in ("stdout", "stderr"):
        handler = _Destination(destination)
    else:
        handler = logging.FileHandler(destination, delay=True)
        handler.setFormatter(_Formatter())
    for old in tuple(logger.handlers):
        logger.removeHandler(old)
        old.close()
    logger.addHandler(handler)
    setLogLevel(environment.get(LEVEL_VARIABLE) or DEFAULT_LEVEL)


def limit_repeats(most: Optional[int]) -> None:
    """Write each text at most ``most`` times from now on; None means always."""
    for handler in logger.handlers:
        for old in tuple(handler.filters):
            handler.removeFilter(old)
        handler.addFilter(RepeatLimit(most))


def deprecated(since: str, reason: str) -> Callable[[Function], Function]:
    """Log, at every call, since when a function is deprecated and what to use instead."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def warned(*args: Any, **kwargs: Any) -> Any:
            logger.warning("%s is deprecated since version %s: %s", function.__qualname__, since, reason)
            return function(*args, **kwargs)

        return warned  # type: ignore[return-value]

    return decorate


class RepeatLimit(logging.Filter):
    """Drops a line that has been written ``most`` times; None writes them all."""

    def __init__(self, most: Optional[int]) -> None:
        super().__init__()
        self.most = most
        self._seen: Dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if self.most is None:
            return True
        line = record.getMessage()
        self._seen[line] = self._seen.get(line, 0) + 1
        return self._seen[line] <= self.most


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
    """An error that a reset fixes; ``recovery_action`` names the reset."""

    def __init__(
        self, message: object = "", type: str = PYTHON_ERROR, location: str = "", recovery_action: str = ""
    ) -> None:
        super().__init__(message, type, location)
        self.args = (*self.args, recovery_action)
        self.recovery_action = recovery_action


class UnrecoverableError(Error):
    """An error of the system that no reset fixes."""


def createPoptorchError(msg: str) -> Error:
    """The error of the Python layer with this message."""
    return Error(msg)


class ConfigFileError(Exception):
    """A file of options, or JSON, cannot be applied; the message names the place and the line."""
