"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Iterator, Union


@contextlib.contextmanager
def appearing(path: Union[str, os.PathLike[str]]) -> Iterator[Path]:
    """A path beside ``path`` to write to, which becomes ``path`` in one step when the block has ended.

    Whoever fails leaves what was there before; two processes that write one file at once each leave a whole one.
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
