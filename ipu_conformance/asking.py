"""What a run of pytest asks for: whether conformance cases, which of them, and no other tests."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re
from pathlib import Path
from typing import Any, FrozenSet, List, Tuple, Type

import pytest

from ipu_conformance.errors import ConformanceError
from ipu_conformance.selection import OPTIONS, Selection, select
from ipu_conformance.suite_files import suite_folder
from ipu_conformance.targets import FRAMEWORKS

SELECTION = pytest.StashKey[Selection]()
FOLDERS = pytest.StashKey[Tuple[Path, ...]]()
"""Where the files of a run may stand."""
MOST_NAMES = 8
"""Names of a mark expression up to which all their truth values are tried."""


def asks_for_cases(config: pytest.Config) -> bool:
    """Whether a run is about conformance cases: by an option, by its expression of marks, or by where it looks."""
    if any(config.getoption(f"ipu_{name}") is not None for name in (*OPTIONS, "report")):
        return True
    if "ipu" in re.findall(r"\w+", config.getoption("markexpr") or ""):
        return True
    if any("ipu_conformance" in argument for argument in config.args):
        return True
    return bool(asked_of_suite(config))


def asked_of_suite(config: pytest.Config) -> List[Path]:
    """The files and folders of the suite, or around it, that the command line names."""
    suite = suite_folder()
    return [path for path in asked_paths(config) if suite in (path, *path.parents) or path in suite.parents]


def frameworks_asked(config: pytest.Config) -> List[str]:
    """The frameworks of a run whose cases in the suite the command line may be about."""
    suite, paths = suite_folder(), asked_of_suite(config)
    rooms = [path.relative_to(suite).parts[0] if suite in path.parents else "" for path in paths]
    neutral = any(room not in FRAMEWORKS for room in rooms)
    return [name for name in selection_of(config).frameworks if name in rooms or neutral]


def selection_of(config: pytest.Config) -> Selection:
    """What the run is about; decided when it is first asked for, so that other people's runs never are."""
    found = config.stash.get(SELECTION, None)
    if found is None:
        try:
            found = config.stash[SELECTION] = select({name: config.getoption(f"ipu_{name}") for name in OPTIONS})
        except ConformanceError as error:
            raise pytest.UsageError(str(error)) from error
    return found


def asked_paths(config: pytest.Config) -> List[Path]:
    """The files and folders that the command line names, also by the name of a package."""
    return [_asked_path(argument.partition("::")[0], config) for argument in config.args]


def _asked_path(argument: str, config: pytest.Config) -> Path:
    path = (config.invocation_params.dir / argument).resolve()
    if not config.getoption("pyargs", False) or path.exists():
        return path
    try:
        spec = importlib.util.find_spec(argument)
    except (ImportError, ValueError):  # pytest says so itself
        return path
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin]
    return Path(next(filter(None, places), path)).resolve()


def path_of(nodeid: str, config: pytest.Config) -> Path:
    """The file of a test; one outside pytest's root is named by its place in the suite, or in what was asked for."""
    if FOLDERS not in config.stash:
        config.stash[FOLDERS] = (config.rootpath, suite_folder(), *asked_paths(config))
    return _found(nodeid.partition("::")[0], config.stash[FOLDERS])


@functools.lru_cache(maxsize=None)
def _found(file: str, folders: Tuple[Path, ...]) -> Path:
    candidates = [(folder / file).resolve() for folder in folders]
    return next((path for path in candidates if path.is_file()), candidates[0])


def matches_cases_only(expression: str) -> bool:
    """Whether a mark expression is false of every test that does not carry the marker ipu."""
    names = sorted(set(re.findall(r"[A-Za-z_]\w*", expression)) - {"and", "or", "not", "ipu"})
    if "ipu" not in expression or len(names) > MOST_NAMES:
        return False
    try:
        compiled = _compiled(expression)
    except SyntaxError:  # pytest says so itself
        return False
    choices = (frozenset(chosen) for size in range(len(names) + 1) for chosen in itertools.combinations(names, size))
    return not any(compiled.evaluate(functools.partial(_is_among, choice)) for choice in choices)


def require_readable_expressions(config: pytest.Config) -> None:
    """Refuse an expression of -k or -m that nobody can read: a worker that refuses it ends in an internal error."""
    for flag, name in (("-k", "keyword"), ("-m", "markexpr")):
        expression = config.getoption(name)
        try:
            _compiled(expression or "ipu")
        except SyntaxError as error:
            raise pytest.UsageError(f"{flag} is {expression!r}, which cannot be read: {error}.") from error


def _compiled(expression: str) -> Any:
    """The expression of -k or -m that pytest makes of a text; a SyntaxError says why there is none."""
    from _pytest.mark import expression as expressions

    unreadable: Type[Exception] = getattr(expressions, "ParseError", SyntaxError)  # older versions of pytest have it
    try:
        return expressions.Expression.compile(expression)
    except unreadable as error:
        raise SyntaxError(str(error)) from error


def _is_among(names: FrozenSet[str], name: str, **arguments: Any) -> bool:
    return name in names
