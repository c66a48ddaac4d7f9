"""Tables of kills: ``<framework>.ini`` names for each fault a case that notices it, or why a device cannot have it."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence

from ipu_conformance.matrix.table import MatrixError

HELP = "tables <framework>.ini: fault = case that notices it"
SPARED = "spared"


class KillTables(NamedTuple):
    """What the tables say, by framework and fault."""

    killers: Dict[str, Dict[str, List[str]]]
    """The cases that notice it."""
    spared: Dict[str, Dict[str, str]]
    """Why the framework's device cannot have it."""


def read(paths: Sequence[Path]) -> KillTables:
    """The tables of several frameworks; a case begins in the framework's folder, or with a slash in the suite's."""
    tables = KillTables({}, {})
    for path in paths:
        parser = configparser.ConfigParser(delimiters=(" = ",), interpolation=None)
        try:
            parser.read_string(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, configparser.Error) as error:
            raise MatrixError(f"{path} holds no table of kills: {' '.join(str(error).split())}") from error
        killers: Dict[str, List[str]] = {}
        for section in set(parser.sections()) - {SPARED}:
            for fault, case in parser[section].items():
                killers.setdefault(fault, []).append(case[1:] if case[0] == "/" else f"{path.stem}/{case}")
        tables.killers[path.stem] = killers
        tables.spared[path.stem] = dict(parser[SPARED]) if SPARED in parser else {}
    return tables
