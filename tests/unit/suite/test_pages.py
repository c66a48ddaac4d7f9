"""What the pages tell users to type is understood, and what they point to is there."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.versions import ROWS
from ipu_conformance import cli, levels
from ipu_conformance.report import mandatory

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")]
COMMAND = re.compile(r"^(?:\$ |[A-Z_]+=\S+ |\.venv/bin/)*ipu-conformance (.*)$")


def commands():
    """The commands in the blocks of all pages, once each, with the words that follow ``ipu-conformance``."""
    for page in PAGES:
        for line in page.read_text(encoding="utf-8").splitlines():
            match = COMMAND.match(line.strip()) if line.startswith("    ") else None
            if match and not re.search(r"…|\$\{\{| \[-", match[1]):  # neither shortened, nor a template, nor a synopsis
                yield shlex.split(match[1].split(" || ")[0], comments=True)


TYPED = sorted({tuple(words) for words in commands()})


@pytest.mark.parametrize("words", TYPED, ids=" ".join)
def test_a_command_of_the_pages_is_understood(words):
    """Its options and arguments are those of today."""
    cli._parser(words).parse_args(words)


def test_the_pages_have_commands():
    """The search above finds what it is for."""
    assert {words[0] for words in TYPED} >= {"qualify", "doctor", "emulate", "train", "infer", "data", "report", "case"}


def test_links_lead_to_files():
    """Every relative link of every page."""
    lost = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]

    assert lost == []


def test_the_reason_on_the_page_is_that_of_today():
    """Smoke alone leaves so many mandatory cases of Paddle out."""
    lists, listed = levels.shipped(), mandatory.of_frameworks(mandatory.shipped().cases, ["paddle"])
    missing = sum(lists.of(case) != "smoke" for case in listed)

    page = (ROOT / "docs" / "qualify.md").read_text(encoding="utf-8")
    assert f"        - {missing} mandatory cases were not run: they need level premerge.\n" in page


def test_cases_of_the_pages_exist():
    """The ids that a user is told to run alone are on the list of premerge."""
    asked = {words[1] for words in TYPED if words[0] == "case" and words[1:]}
    listed = {
        f"{family}[{parameters}]" if parameters else family
        for family, cases in levels.shipped().premerge.items()
        for parameters in cases
    }

    assert asked
    assert asked <= listed


@pytest.mark.parametrize(
    ("refused", "result", "expected"),
    [
        (False, "94 passed, 3 warnings", True),
        (False, "1 failed, 93 passed; exit code 1", False),
        (False, "refused: paddle cannot be emulated; install another", False),
        (False, "not run: there is no Python 3.9 here", True),
        (True, "refused: paddle cannot be emulated; install another", True),
        (True, "94 passed", False),
        (True, "no end within 900 s", False),
    ],
)
def test_a_row_of_versions_fails_where_it_is_not_as_it_should_be(refused, result, expected):
    """A refusal is right for the versions that have to be refused, and for no other."""
    row = next(row for row in ROWS if row.refused is refused)

    assert row.is_as_it_should_be(result) is expected
