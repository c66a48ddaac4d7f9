"""The mandatory list is frozen with a digest, and follows from the levels and the matrix."""

import pytest

from ipu_conformance.cli import case
from ipu_conformance.report import mandatory
from ipu_conformance.report.mandatory import Advisory, Mandatory, MandatoryError, computed

CASES = ("a.py::test_a[x]", "a.py::test_a[y]", "b.py::test_b", "c.py::test_c[z]", "d.py::test_d")


def test_the_list_is_read_as_it_was_written(tmp_path):
    """Cases with parameters, with an empty one and without."""
    cases = {*CASES, "d.py::test_e[]"}
    Mandatory(frozenset(cases)).write(tmp_path / "m.json")

    assert mandatory.read(tmp_path / "m.json").cases == cases


def test_a_list_that_was_changed_by_hand_is_refused(tmp_path):
    """The digest is that of the ids."""
    path = tmp_path / "m.json"
    Mandatory(frozenset(CASES)).write(path)
    path.write_text(path.read_text().replace("test_d", "test_e"))

    with pytest.raises(MandatoryError, match=r"m\.json was changed by hand"):
        mandatory.read(path)


def test_a_case_is_mandatory_if_it_was_seen_to_notice_a_fault_or_belongs_to_smoke():
    """Premerge has to have it, any target has to make sense of it, and it must not be advisory."""
    made = computed(
        premerge=CASES[:4], smoke=CASES[:1], killers=CASES[1:], bound=CASES[2:3], rows=Advisory({"c.py*": "a habit"})
    )

    assert made.cases == {CASES[0], CASES[1]}


def test_the_shipped_list_has_cases_of_every_framework_and_no_advisory_one():
    """Its digest is right, too."""
    shipped, rows = mandatory.shipped(), mandatory.advisory()

    for framework in ("poptorch", "tensorflow", "paddle"):
        assert len(mandatory.of_frameworks(shipped.cases, [framework])) > 100
    assert [case for case in shipped.cases if rows.why(case)] == []


def test_a_pattern_takes_brackets_literally():
    """Ids have brackets; a star is the only wildcard that is needed."""
    assert mandatory.matches("a.py::test_a[x-1]", "a.py::test_a[x-*]")
    assert not mandatory.matches("a.py::test_a[y-1]", "a.py::test_a[x-*]")


def test_the_example_of_a_case_exists():
    """What the help shows can be typed: `mandatory check` compares the list with the suite."""
    assert case.EXAMPLE in mandatory.shipped().cases
