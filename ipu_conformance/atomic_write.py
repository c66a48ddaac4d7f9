"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Iterator, Union


@contextlib.contextmanager
def replacing(path: Union[str, os.PathLike[str]]) -> Iterator[Path]:
    """A path beside ``path`` to write to, which takes its place in one step when the block ends.

    A failure leaves what was there before; two processes that write one file at once each leave a whole one.
    """
    target = Path(path)
    part = target.with_name(f"{target.name}.{os.urandom(6).hex()}.part")
    try:
        yield part
        os.replace(str(part), str(target))
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(str(part))
        raise
