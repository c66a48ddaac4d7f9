"""What programs of earlier SDKs call: a room that is entered by its first use, which the log mentions once.

Other modules import it when a program says something old, and not before. Each old name leads to what took its place.
"""

from __future__ import annotations

_SAID = False


def entered(what: str) -> None:
    """Log, the first time only, that the program is of an earlier SDK."""
    global _SAID
    if _SAID:
        return
    from tensorflow.python.platform import tf_logging

    _SAID = True
    tf_logging.warning(
        "The program uses %s, which is of an earlier SDK: it is translated to the API of today, and this is said once.",
        what,
    )
