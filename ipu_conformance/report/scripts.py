"""What is left of each failure besides its row: what pytest said of it, and a program that shows it alone.

A case of the suite that has failed tells its program (``ipu_conformance.report.alone``), which needs neither pytest nor
a fixture. A case of somebody else has none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict

from ipu_conformance.report.results import FAILED, Result

if TYPE_CHECKING:
    from ipu_conformance.report.folder import Record

HEAD = '''\
"""Shows one failure of a device, without pytest. The case was

    {case}

and it failed with

    {sentence}
"""

'''


def files(record: Record) -> Dict[str, str]:
    """The files of the folder ``failures`` by name."""
    result = {}
    failed = [each for _, each in sorted(record.results.items()) if each.outcome == FAILED]
    for number, each in enumerate(failed, start=1):
        name = name_of(number, each)
        result[f"{name}.txt"] = f"{each.case}\n{each.sentence}\nreproduce: {each.command}\n\n{each.details}\n"
        if each.program:
            result[f"{name}.py"] = program(each)
    return result


def program(result: Result) -> str:
    """The program of a failed case, with what it shows in front."""
    case, sentence = (text.replace("\\", "\\\\").replace('"""', "'''") for text in (result.case, result.sentence))
    return HEAD.format(case=case, sentence=sentence) + result.program


def name_of(number: int, result: Result) -> str:
    """A file's name for a failed case: its number, and the letters of its id."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", result.case.partition("::")[2]).strip("-")
    return f"{number:04d}-{words[:80]}"
