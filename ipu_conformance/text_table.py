"""Tables of plain text."""

from __future__ import annotations

from typing import Callable, List, Sequence


def text_table(
    rows: Sequence[Sequence[str]], *, ruled: bool = False, align: Callable[[str, int], str] = str.ljust
) -> List[str]:
    """The rows as lines, with columns as wide as their widest cell; ``ruled`` underlines the first row."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    if ruled:
        rows = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return ["  ".join(map(align, row, widths)).rstrip() for row in rows]
