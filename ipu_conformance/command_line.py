"""How a command ends: its exit code, and one sentence on stderr where something cannot be used."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import types
from typing import Any, Callable, Iterator, List, Optional

from ipu_conformance.errors import ConformanceError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
IMPORTING = "<frozen importlib._bootstrap>"
"""The file of Python's own import."""


def exit_code(run: Callable[[], int]) -> int:
    """The exit code of a command; bad input is one sentence on stderr and exit code 2."""
    if sys.stdout is None:
        return _refused("stdout is closed; open it, or send it to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without a sign shows its number
    try:
        with _interruptible():
            code = run()
        sys.stdout.flush()
        return code
    except ConformanceError as error:
        return _refused(str(error))
    except BrokenPipeError:
        # The reader (head, less) went away.
        _forget_stdout()
        return 1
    except OSError as error:
        _forget_stdout()
        where = f"{error.filename} cannot be used" if error.filename is not None else "the output cannot be written"
        return _refused(f"{where}: {error.strerror or error}")
    except KeyboardInterrupt:
        print("ipu-conformance: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """An interrupt is an interrupt: a framework whose native part is being imported makes another error of it.

    What it says of that error, such as that its files are damaged, is nothing that the user should read.
    """
    interrupts: List[int] = []
    stderr = sys.stderr

    def note(number: int, frame: Any) -> None:
        interrupts.append(number)
        if _is_importing(frame):
            sys.stderr = io.StringIO()
        signal.default_int_handler(number, frame)

    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception:
        if interrupts:
            raise KeyboardInterrupt from None
        raise
    finally:
        sys.stderr = stderr
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_importing(frame: Optional[types.FrameType]) -> bool:
    while frame is not None and frame.f_code.co_filename != IMPORTING:
        frame = frame.f_back
    return frame is not None


def _refused(sentence: str) -> int:
    """Say why nothing was done; a closed stderr hears nothing."""
    if sys.stderr is not None:
        print(f"ipu-conformance: error: {sentence}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _forget_stdout() -> None:
    """Let the interpreter's end write what is left to nowhere: it would raise again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # not a file
        sys.stdout = io.StringIO()
