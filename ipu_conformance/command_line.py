"""How a command ends: its exit code, and one sentence on stderr where something cannot be used."""

from __future__ import annotations

import io
import os
import sys
from typing import Callable

from ipu_conformance.errors import ConformanceError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def exit_code(run: Callable[[], int]) -> int:
    """The exit code of a command; bad input is one sentence on stderr and exit code 2."""
    if sys.stdout is None:
        return _refused("stdout is closed; open it, or send it to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without a sign shows its number
    try:
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
