"""The mandatory list, the advisory rows and waivers: what a device must pass, as data.

``mandatory.json`` freezes the ids with their digest. A case is mandatory if it was seen to fail a wrong device (the
published matrix of faults names it) or belongs to smoke, if premerge has it, if it makes sense on any target and needs
no module besides its framework's, and if it follows from the vendor's public documents. What does not follow from them
is advisory: it is run and shown, and fails no device. ``advisory.json`` lists it with the reason.
"""

from __future__ import annotations

import datetime
import fnmatch
import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from ipu_conformance.atomic_write import replacing
from ipu_conformance.errors import ConformanceError
from ipu_conformance.levels import parted

FILE = Path(__file__).with_name("mandatory.json")
ADVISORY_FILE = Path(__file__).with_name("advisory.json")


class MandatoryError(ConformanceError):
    """The mandatory list, the advisory rows or the waivers cannot be used."""


@dataclass(frozen=True)
class Mandatory:
    """The frozen ids."""

    cases: FrozenSet[str]

    @property
    def digest(self) -> str:
        """The SHA-256 of the ids, sorted, a line each."""
        return digest_of(self.cases)

    def write(self, path: Path = FILE) -> None:
        """Write the ids by family with their digest, whole or not at all."""
        families: Dict[str, List[str]] = {}
        for case in sorted(self.cases):
            family, _ = parted(case)
            families.setdefault(family, []).append(case[len(family) :])
        rows = ",\n".join(f"{json.dumps(family)}: {json.dumps(each)}" for family, each in sorted(families.items()))
        with replacing(path) as beside:
            beside.write_text(f'{{\n"digest": "{self.digest}",\n"cases": {{\n{rows}\n}}\n}}\n', encoding="utf-8")


def digest_of(cases: Iterable[str]) -> str:
    """The SHA-256 of ids, whatever their order."""
    return hashlib.sha256("".join(f"{case}\n" for case in sorted(cases)).encode()).hexdigest()


def read(path: Path = FILE) -> Mandatory:
    """The list of a file, whose digest must be its own."""
    data = _json(path)
    try:
        cases = frozenset(family + each for family, members in data["cases"].items() for each in members)
        digest = data["digest"]
    except (KeyError, TypeError, AttributeError) as error:
        raise MandatoryError(f"{path.name} holds no mandatory list: {error!r}; install the package again.") from error
    if digest_of(cases) != digest:
        raise MandatoryError(f"{path.name} was changed by hand; remake it with `ipu-conformance mandatory update`.")
    return Mandatory(cases)


@functools.lru_cache(maxsize=1)
def shipped() -> Mandatory:
    """The list of the package."""
    return read()


@dataclass(frozen=True)
class Advisory:
    """Cases that do not follow from the vendor's public documents: patterns of ids, each with the reason."""

    rows: Mapping[str, str]

    def why(self, case: str) -> Optional[str]:
        """Why a case is advisory, None if it is not."""
        return next((reason for pattern, reason in self.rows.items() if matches(case, pattern)), None)


@functools.lru_cache(maxsize=1)
def advisory(path: Path = ADVISORY_FILE) -> Advisory:
    """The advisory rows of the package."""
    data = _json(path)
    if not isinstance(data, dict) or not all(isinstance(reason, str) and reason for reason in data.values()):
        raise MandatoryError(f"{path.name} is to map patterns of ids to reasons; install the package again.")
    return Advisory(data)


def matches(case: str, pattern: str) -> bool:
    """Whether a case has an id, or one of a pattern with * in it; brackets mean themselves."""
    return fnmatch.fnmatchcase(case, pattern.replace("[", "[[]"))


def computed(
    *, premerge: Iterable[str], smoke: Iterable[str], killers: Iterable[str], bound: Iterable[str], rows: Advisory
) -> Mandatory:
    """The list that follows from the levels and the matrix; ``bound`` cases need a kind of target, or a tool."""
    wanted = (set(killers) | set(smoke)) & set(premerge) - set(bound)
    return Mandatory(frozenset(case for case in wanted if rows.why(case) is None))


@dataclass(frozen=True)
class Waiver:
    """A failure that somebody answers for, until a day."""

    case: str
    """An id, or a pattern with * in it, but not in the name of its file."""
    reason: str
    link: str
    until: datetime.date

    def facts(self) -> Dict[str, str]:
        """Plain data."""
        return {"case": self.case, "reason": self.reason, "link": self.link, "until": self.until.isoformat()}


WAIVER_FIELDS = ("case", "reason", "link", "until")


def waivers(path: Path) -> Tuple[Waiver, ...]:
    """The waivers of a JSON file: a list of objects with case, reason, link and until (2027-01-31)."""
    return waivers_of(_json(path), path.name)


def waivers_of(data: Any, source: str) -> Tuple[Waiver, ...]:
    """The waivers of plain data; one that lacks a word is refused."""
    if not isinstance(data, list):
        raise MandatoryError(f"{source} is to hold a list of waivers, each with {', '.join(WAIVER_FIELDS)}.")
    result = []
    for number, row in enumerate(data, start=1):
        if not isinstance(row, dict) or sorted(row) != sorted(WAIVER_FIELDS):
            raise MandatoryError(
                f"waiver {number} of {source} is to have {', '.join(WAIVER_FIELDS)}, and nothing else."
            )
        if not all(isinstance(row[word], str) and row[word].strip() for word in WAIVER_FIELDS):
            raise MandatoryError(f"waiver {number} of {source} has an empty word: it needs a reason, a link and a day.")
        file, separator, _ = row["case"].partition("::")
        if not separator or "*" in file:
            raise MandatoryError(
                f"waiver {number} of {source} is of {row['case']!r}; name the file, as in file.py::name, and use * "
                "in the name only."
            )
        try:
            until = datetime.date.fromisoformat(row["until"])
        except ValueError:
            raise MandatoryError(f"waiver {number} of {source} ends on {row['until']!r}; write 2027-01-31.") from None
        result.append(Waiver(row["case"], row["reason"], row["link"], until))
    return tuple(result)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MandatoryError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise MandatoryError(f"{path} is not JSON: {error}.") from error


def of_frameworks(cases: Iterable[str], frameworks: Sequence[str]) -> FrozenSet[str]:
    """The cases that need one of these frameworks, or none."""
    from ipu_conformance.workers.scheduling import framework_of

    return frozenset(case for case in cases if framework_of(case) in (None, *frameworks))
