"""Which rules of training the suite asks of each framework, read off the cases as pytest collects them."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from pathlib import Path
from typing import Dict, List, Set, Tuple

import pytest

from ipu_conformance.errors import ConformanceError
from ipu_conformance.targets import FRAMEWORKS
from ipu_conformance.text_table import text_table
from ipu_conformance.workers.scheduling import framework_of


class _Collected:
    """Counts the cases of each rule and framework, and keeps why others are left out."""

    def __init__(self) -> None:
        self.cases: Counter[Tuple[str, str]] = Counter()
        self.reasons: Dict[Tuple[str, str], Set[str]] = {}

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Count one case."""
        rule = item.path.stem[len("test_") : -len("_ipu")].replace("_", " ")
        framework = framework_of(item.nodeid) or ""
        lacking = [str(marker.args[1]) for marker in item.iter_markers("unable") if marker.args[0] == framework]
        if lacking:
            self.reasons.setdefault((rule, framework), set()).update(lacking)
        else:
            self.cases[rule, framework] += 1


def training(folder: Path) -> List[str]:
    """A table of rules and frameworks, then every gap with its reason."""
    found = _Collected()
    # The plug-in is imported already, which pytest warns of.
    arguments = [str(folder), "--collect-only", "-q", "--ipu-level", "soak", "-W", "ignore::pytest.PytestWarning"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = pytest.main(arguments, plugins=[found])
    if code != 0:
        raise ConformanceError(f"The training cases cannot be collected: {printed.getvalue().strip().splitlines()[-1]}")
    rules = sorted({rule for rule, _ in (*found.cases, *found.reasons)})
    rows = [["rule", *FRAMEWORKS], *([rule, *(str(found.cases[rule, name]) for name in FRAMEWORKS)] for rule in rules)]
    gaps = [
        f"{rule}, {framework}: {'; '.join(sorted(reasons))}"
        for (rule, framework), reasons in sorted(found.reasons.items())
    ]
    return [*text_table(rows, ruled=True), "", "Left out, because a framework's API has no words for it:", *gaps]
