"""A folder follows from its journal; verify names what was changed, merge joins shards, diff says what differs."""

import json
from xml.etree import ElementTree

import pytest

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import journal, mandatory, merging, schema, verification
from ipu_conformance.report.difference import difference
from ipu_conformance.report.folder import ReportError
from ipu_conformance.report.mandatory import Mandatory
from ipu_conformance.report.schema import SchemaError
from tests.unit.report import journals
from tests.unit.report.journals import CASES, MANDATORY, entries, failed, passed

MARGIN = {"used": 0.25, "what": "the weights", "checks": 3}
CURVE = {"metric": "loss", "passed": True, "values": [1.0, 0.5, 0.25], "low": [0.9, 0.4, 0.2],
         "mean": [1.0, 0.5, 0.3], "high": [1.1, 0.6, 0.4]}  # fmt: skip
RESULTS = [
    passed(CASES[0], margin=MARGIN, curves=(CURVE,)),
    failed(CASES[1]),
    *map(passed, CASES[2:]),
]


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    """The mandatory list of this release is the journals'."""
    monkeypatch.setattr(mandatory, "shipped", lambda: Mandatory(frozenset(MANDATORY)))


def sealed(folder, lines):
    """A folder with the report of a journal."""
    report_folder.write(folder, journals.write(folder, lines))
    return folder


@pytest.fixture
def folder(tmp_path):
    """The report of a run in which one of seven cases failed."""
    return sealed(tmp_path / "report", entries(RESULTS))


def test_a_report_has_verdict_run_counts_areas_and_cases(folder):
    """It follows the schema, which is versioned."""
    report = report_folder.read_report(folder)

    assert report["schema"] == schema.VERSION
    assert report["verdict"]["word"] == "NOT QUALIFIED"
    assert report["counts"] == {"passed": 6, "failed": 1, "skipped": 0}
    assert [row["case"] for row in report["cases"]] == sorted(CASES)
    assert {(row["chapter"], row["framework"]): row["failed"] for row in report["areas"]} == {
        ("training", "poptorch"): 1,
        ("training", "paddle"): 0,
        ("feeding", "poptorch"): 0,
        ("ir", "paddle"): 0,
        ("ops", "poptorch"): 0,
        ("ops", "paddle"): 0,
    }
    (row,) = [row for row in report["cases"] if row["outcome"] == "failed"]
    assert row["place"] == "step 0, replica 2"
    assert row["command"] == f"ipu-conformance case '{CASES[1]}'"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema": 2}, "The report has schema 2, and this release reads 1."),
        ({"counts": {"passed": 1, "failed": 0}}, "report.counts has no skipped, which the schema asks for."),
        ({"extra": 1}, "report has extra, which the schema does not know."),
        ({"planned": {"count": True, "digest": ""}}, "report.planned.count is True; the schema has int there."),
        ({"cases": [{"case": 3}]}, r"report.cases\[0\].case is 3; the schema has str there."),
        ({"verdict": {"word": "FINE"}}, "report.verdict.word is 'FINE'; the schema allows QUALIFIED, NOT QUALIFIED"),
    ],
)
def test_a_report_that_does_not_follow_the_schema_is_refused(folder, change, sentence):
    """The sentence names the place."""
    report = report_folder.read_report(folder)

    with pytest.raises(SchemaError, match=sentence):
        schema.require({**report, **change})


def test_junit_has_the_cases_and_the_properties_of_the_run(folder):
    """Continuous integration shows what was run on what."""
    suite = ElementTree.parse(folder / report_folder.JUNIT).getroot()[0]
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}

    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("7", "1", "0")
    assert properties["target"] == "acme"
    assert properties["level"] == "premerge"
    assert properties["poptorch.version"] == "torch 2.1"
    assert properties["poptorch.device.serial"] == "A-17"
    assert properties["verdict"] == "NOT QUALIFIED"
    (failure,) = suite.iter("failure")
    assert failure.get("message").startswith("the loss of step 0, replica 2 differs")
    assert f"reproduce: ipu-conformance case '{CASES[1]}'" in failure.text


def test_junit_is_xml_whatever_a_device_says(tmp_path):
    """Colours and null bytes are not XML."""
    lines = entries([failed(CASES[0], sentence="\x1b[31mred\x00"), *map(passed, CASES[1:])])

    (failure,) = ElementTree.parse(sealed(tmp_path, lines) / report_folder.JUNIT).getroot().iter("failure")
    assert failure.get("message") == "?[31mred?"


def test_a_sealed_folder_is_verified(folder):
    """Nothing is to be complained about."""
    assert verification.complaints(folder) == []


def test_a_change_of_any_byte_is_found_and_its_file_named(folder):
    """At the beginning, the end and between, of every file."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        before, name = path.read_bytes(), path.relative_to(folder).as_posix()
        for position in {0, len(before) // 3, len(before) // 2, len(before) - 1}:
            changed = bytearray(before)
            changed[position] ^= 1
            path.write_bytes(changed)
            complaints = verification.complaints(folder)
            assert complaints, (name, position)
            assert all(each.startswith(name) for each in complaints), complaints
        path.write_bytes(before)
    assert verification.complaints(folder) == []


def test_a_missing_or_a_new_file_is_named(folder):
    """The manifest lists every file."""
    (folder / "junit.xml").unlink()
    (folder / "notes.txt").write_text("fine")

    assert verification.complaints(folder) == ["junit.xml is missing.", "notes.txt is not in the manifest."]


def test_a_better_verdict_with_a_new_manifest_is_found(folder):
    """The report has to follow from the journal, not only to have its digest."""
    report = report_folder.read_report(folder)
    report["verdict"].update(word="QUALIFIED", reasons=[])
    (folder / report_folder.REPORT).write_text(report_folder.pretty(report))
    record = report_folder.recorded(journal.read(folder / "journal.jsonl").entries)
    report_folder.seal(folder, record, report_folder.verdict_of(record))

    (complaint,) = verification.complaints(folder)
    assert complaint == (
        "report.json does not follow from the journal (the journal gives NOT QUALIFIED, the report says QUALIFIED)."
    )


def test_a_shorter_mandatory_list_is_found(tmp_path):
    """A list of one's own is not that of the release."""
    short = {"digest": mandatory.digest_of(MANDATORY[:1]), "cases": list(MANDATORY[:1])}
    own = sealed(tmp_path, entries(list(map(passed, CASES)), mandatory=short))

    assert "the mandatory list is not that of release" in verification.complaints(own)[0]


def test_a_run_that_has_not_ended_is_not_verified(tmp_path):
    """A journal without a manifest is a run to go on with."""
    journals.write(tmp_path, entries(RESULTS))

    assert verification.complaints(tmp_path) == [
        "manifest.json is missing: the run has not ended, go on with --resume."
    ]


def shard(folder, number, cases, of=3, **changes):
    """The report of a shard whose cases all passed."""
    options = {"planned": cases, "shard": f"{number}/{of}", **changes}
    return sealed(folder / f"shard{number}", entries(list(map(passed, cases)), **options))


def test_shards_together_are_the_whole_run(tmp_path):
    """The merged report is that of a run that was not divided, but for times."""
    parts = [shard(tmp_path, 1, CASES[:3]), shard(tmp_path, 3, CASES[3:4]), shard(tmp_path, 2, CASES[4:])]
    whole = sealed(tmp_path / "whole", entries(list(map(passed, CASES))))

    verdict = merging.merge(parts, tmp_path / "merged")

    assert verdict.word == "QUALIFIED"
    assert verification.complaints(tmp_path / "merged") == []
    merged, undivided = (report_folder.read_report(folder) for folder in (tmp_path / "merged", whole))
    assert {**merged, "times": 0} == {**undivided, "times": 0}


def test_a_missing_shard_makes_the_whole_incomplete(tmp_path):
    """It is named."""
    parts = [shard(tmp_path, 1, CASES[1:3]), shard(tmp_path, 3, CASES[3:])]

    verdict = merging.merge(parts, tmp_path / "merged")

    assert verdict.word == "INCOMPLETE"
    assert verdict.reasons == ("1 mandatory case was not run: shard 2 of 3 is missing.",)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": "other"}, "differs from .* in its target"),
        ({"ipu_conformance": "0.0.1"}, "differs from .* in its ipu_conformance"),
        ({"suite": "6" * 64}, "differs from .* in its suite"),
        ({"of": 4}, "differs from .* in its number of shards"),
        ({"number": 1}, "are both shard 1/3"),
        ({"mandatory": {"digest": mandatory.digest_of(CASES), "cases": list(CASES)}}, "not that of release"),
        ({"environment": {**journals.ENVIRONMENT, "packages": {"torch": "2.2"}}}, "in its packages"),
        ({"shard": ""}, "is the report of a whole run"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_shards_of_different_runs_are_refused(tmp_path, changes, sentence):
    """Versions, targets and lists have to be the same."""
    first = shard(tmp_path / "a", 1, CASES[:3])
    options = {"number": 2, "cases": CASES[3:], **changes}
    other = shard(tmp_path / "b", **options)

    with pytest.raises(ReportError, match=sentence):
        merging.merge([first, other], tmp_path / "merged")


def test_a_shard_that_was_changed_is_not_merged(tmp_path):
    """Merging would seal the change."""
    parts = [shard(tmp_path, 1, CASES[:3]), shard(tmp_path, 2, CASES[3:])]
    (parts[1] / "junit.xml").write_text("<fine/>")

    with pytest.raises(ReportError, match=r"shard2 cannot be merged: junit\.xml was changed"):
        merging.merge(parts, tmp_path / "merged")


def test_diff_names_verdicts_outcomes_margins_and_times(tmp_path):
    """A difference of results is told from one of times."""
    before = sealed(tmp_path / "a", entries([passed(CASES[0], margin=MARGIN), *map(passed, CASES[1:])]))
    wide = {**MARGIN, "used": 0.75}
    after = sealed(
        tmp_path / "b",
        entries(
            [passed(CASES[0], margin=wide), passed(CASES[1], seconds=3.5), failed(CASES[2]), *map(passed, CASES[3:])]
        ),
    )

    found = difference(*map(report_folder.read_report, (before, after)))

    assert found.results_differ
    assert found.lines == [
        "verdict: QUALIFIED -> NOT QUALIFIED",
        f"{CASES[2]}: passed -> failed (the loss of step 0, replica 2 differs: actual 1.5, expected 1.25.)",
        f"{CASES[0]}: uses 75% of its tolerance, was 25%",
        f"{CASES[1]}: 3.50 s, was 0.50 s",
        "time of all cases: 6.2 s, was 3.5 s",
    ]


def test_diff_of_equal_results_is_quiet(tmp_path, folder):
    """Only the times are said."""
    found = difference(*[report_folder.read_report(folder)] * 2)

    assert found == (["time of all cases: 3.2 s, was 3.2 s"], False)


def test_a_folder_without_a_report_is_refused(tmp_path):
    """With a sentence."""
    with pytest.raises(ReportError, match="holds no report: No such file"):
        report_folder.read_report(tmp_path)
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(ReportError, match="is not JSON"):
        report_folder.read_report(tmp_path)


def test_a_report_is_strict_json(folder):
    """No NaN, which other programs refuse."""

    def refuse(word):
        raise AssertionError(word)

    json.loads((folder / "report.json").read_text(), parse_constant=refuse)
