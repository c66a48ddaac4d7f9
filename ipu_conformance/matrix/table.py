"""The published matrix: what is known of every fault and every family of cases, as data in the package."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Sequence

from ipu_conformance.atomic_write import replacing
from ipu_conformance.errors import ConformanceError
from ipu_conformance.matrix.search import family
from ipu_conformance.matrix.verdict import Verdict

PUBLISHED = Path(__file__).with_name("matrix.json")
VERSION = 2
SLIP = "slip:"
"""How the names of faults begin that follow from a function of the emulator."""


class MatrixError(ConformanceError):
    """A matrix cannot be read, or was asked for what it does not hold."""


@dataclass
class Row:
    """What is known of one fault on one framework."""

    what: str
    place: str
    kills: List[str] = field(default_factory=list)
    """The cases that noticed, in the order in which they were tried."""
    broke: List[str] = field(default_factory=list)
    """The cases in which the device crashed."""
    survived: int = 0
    """How many cases passed."""
    seconds: float = 0.0
    """Processor time up to the first kill."""
    spared: str = ""
    """Why the framework's device cannot have it; empty if it can."""


@dataclass
class Matrix:
    """The rows by framework and fault, and the families of cases by framework."""

    rows: Dict[str, Dict[str, Row]] = field(default_factory=dict)
    families: Dict[str, List[str]] = field(default_factory=dict)

    def survivors(self, framework: str) -> List[str]:
        """The faults that the device can have and no case noticed."""
        return [fault for fault, row in self.rows[framework].items() if not row.kills and not row.spared]

    def crashed_only(self, framework: str) -> List[str]:
        """The faults under which cases failed by crashing alone."""
        return [fault for fault in self.survivors(framework) if self.rows[framework][fault].broke]

    def killing(self, framework: str) -> Dict[str, List[str]]:
        """The faults that each family of cases notices."""
        result: Dict[str, List[str]] = {name: [] for name in self.families[framework]}
        for fault, row in self.rows[framework].items():
            for name in dict.fromkeys(map(family, row.kills)):
                result.setdefault(name, []).append(fault)
        return result

    def idle(self, framework: str) -> List[str]:
        """The families of cases that notice no fault."""
        return [name for name, faults in self.killing(framework).items() if not faults]


def gathered(
    framework: str,
    faults: Mapping[str, Mapping[str, str]],
    cases: Iterable[str],
    runs: Iterable[Mapping[str, Any]],
) -> Matrix:
    """The matrix of one framework from what its processes wrote; ``faults`` holds what and place of each by name.

    The families are those of ``cases``.
    """
    rows = {name: Row(each["what"], each["place"]) for name, each in faults.items()}
    for run in runs:
        fault = str(run["fault"])
        if _is_slip(fault):
            if run["verdict"] != Verdict.KILLED:  # one of many that were tried to provoke a case
                continue
            rows.setdefault(fault, Row("a wrong result, or none", fault[len(SLIP) :]))
        row = rows[fault]
        if not row.kills:
            row.seconds = round(row.seconds + float(run["seconds"]), 3)
        if run["verdict"] == Verdict.KILLED:
            row.kills.append(str(run["case"]))
        elif run["verdict"] == Verdict.BROKE:
            row.broke.append(str(run["case"]))
        else:
            row.survived += 1
    return Matrix({framework: rows}, {framework: list(dict.fromkeys(map(family, cases)))})


def grown(matrix: Matrix, framework: str, faults: Mapping[str, Mapping[str, str]], runs: Sequence[Any]) -> Matrix:
    """A matrix with runs that were made since; what it knew stays, but for faults that there are no more."""
    found = gathered(framework, faults, (), [run for run in runs if run["fault"] in faults or _is_slip(run["fault"])])
    before = matrix.rows.get(framework, {})
    rows = {name: replace(row) for name, row in before.items() if name in faults or _is_slip(name)}
    families = list(matrix.families.get(framework, []))
    for name, new in found.rows[framework].items():
        row = rows.setdefault(name, Row(new.what, new.place))
        row.what, row.place = new.what, new.place
        row.kills = list(dict.fromkeys([*row.kills, *new.kills]))
        row.broke = list(dict.fromkeys([*row.broke, *new.broke]))
        row.survived += new.survived
        row.seconds = row.seconds or new.seconds
        families += map(family, new.kills)
    families = sorted(dict.fromkeys(families))
    return Matrix({**matrix.rows, framework: rows}, {**matrix.families, framework: families})


def _is_slip(fault: str) -> bool:
    return fault.startswith(SLIP)


def joined(parts: Sequence[Matrix]) -> Matrix:
    """The matrices of several frameworks in one."""
    whole = Matrix()
    for part in parts:
        whole.rows.update(part.rows)
        whole.families.update(part.families)
    return whole


def write(matrix: Matrix, path: Path = PUBLISHED) -> None:
    """Write the matrix as JSON, whole or not at all."""
    data = {
        "version": VERSION,
        "rows": {name: {fault: vars(row) for fault, row in rows.items()} for name, rows in matrix.rows.items()},
        "families": matrix.families,
    }
    with replacing(path) as beside:
        beside.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read(path: Path = PUBLISHED) -> Matrix:
    """The matrix of a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise MatrixError(f"{path.name} has version {data['version']}, this program reads {VERSION}.")
        rows = {name: {fault: Row(**row) for fault, row in each.items()} for name, each in data["rows"].items()}
        return Matrix(rows, data["families"])
    except OSError as error:
        raise MatrixError(f"{path.name} cannot be read: {error.strerror}; make it with `faults matrix`.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MatrixError(f"{path.name} holds no matrix of faults: {error!r}.") from error
