"""How a command ends: its exit code, and one sentence on stderr where something cannot be used."""

from __future__ import annotations

import os
import sys
from typing import Callable

from ipu_conformance.errors import ConformanceError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def exit_code(run: Callable[[], int]) -> int:
    """The exit code of a command; bad input is one sentence on stderr and exit code 2."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except ConformanceError as error:
        print(f"ipu-conformance: error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        # The reader (head, less) went away; writing more at interpreter exit would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("ipu-conformance: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
