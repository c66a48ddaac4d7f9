"""A folder follows from its journal; verify names what was changed, merge joins shards, diff says what differs."""

import json
import os
from xml.etree import ElementTree

import pytest

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import journal, mandatory, merging, schema, verification
from ipu_conformance.report.folder import ReportError
from ipu_conformance.report.mandatory import Advisory, Mandatory
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
    """The suite and the lists of this release are the journals'."""
    monkeypatch.setattr(mandatory, "shipped", lambda: Mandatory(frozenset(MANDATORY)))
    monkeypatch.setattr(mandatory, "advisory", lambda: Advisory({}))
    monkeypatch.setattr(verification, "suite_digest", lambda folder: journals.run()["suite"])


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
    assert row["command"] == f"ipu-conformance case '{CASES[1]}' --ipu-target acme"


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
    assert f"reproduce: ipu-conformance case '{CASES[1]}' --ipu-target acme\n" in failure.text


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


def resealed(folder, **changes):
    """A folder with the manifest of somebody who knows how it is made: every digest is right."""
    manifest = {**report_folder.manifest_of(folder), **changes}
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    manifest["files"] = {name: report_folder.file_digest(folder / name) for name in names if name != "manifest.json"}
    (folder / "manifest.json").write_text(report_folder.sealed({**manifest, **changes}))
    return folder


def rewritten(path, change):
    """Write what a change gives for a file's text."""
    path.write_text(change(path.read_text()))


def better(text):
    return text.replace("NOT QUALIFIED", "QUALIFIED")


@pytest.mark.parametrize(
    ("tamper", "sentence"),
    [
        (
            lambda folder: rewritten(folder / "report.json", better),
            "report.json does not follow from the journal (the journal gives NOT QUALIFIED, the report says QUALIFIED",
        ),
        (lambda folder: rewritten(folder / "index.html", better), "index.html does not follow from the journal."),
        (lambda folder: rewritten(folder / "junit.xml", better), "junit.xml does not follow from the journal."),
        (lambda folder: (folder / "environment.json").write_text("{}"), "environment.json does not follow from the jo"),
        (lambda folder: (folder / "index.html").unlink(), "index.html is missing: the journal gives such a file."),
        (lambda folder: (folder / "report.json").unlink(), "report.json is missing."),
        (lambda folder: (folder / "report.json").write_text("[" * 9999), "report.json does not follow from the journ"),
        (lambda folder: (folder / "journal.jsonl").unlink(), "journal.jsonl is missing."),
        (lambda folder: (folder / "journal.jsonl").write_text(""), "journal.jsonl has no beginning: it holds no run."),
        (lambda folder: (folder / "letter.txt").write_text("ok"), "letter.txt does not belong to the report: the jour"),
    ],
    ids=["report", "page", "junit", "environment", "no-page", "no-report", "deep", "no-journal", "empty", "foreign"],
)
def test_a_change_with_a_new_manifest_is_found(folder, tamper, sentence):
    """A file has to follow from the journal, not only to have its digest."""
    tamper(folder)
    resealed(folder)

    assert verification.complaints(folder)[0].startswith(sentence)


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        ("", "cannot be read."),
        ("[]", "cannot be read."),
        ("[" * 99999, "cannot be read."),
        ('{"files": {}, "x": "\\ud800"}', "cannot be read."),
        ("{}", "was changed: its digest is not its own."),
        (report_folder.sealed({"files": [1]}), "was changed: its digest is not its own."),
    ],
    ids=["empty", "list", "deep", "surrogate", "nothing", "files"],
)
def test_a_manifest_that_is_none_is_named(folder, manifest, sentence):
    """Whatever stands in its place."""
    (folder / "manifest.json").write_text(manifest)

    assert verification.complaints(folder) == [f"manifest.json {sentence}"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"files": {"../journals.py": "0"}}, "../journals.py is missing."),
        ({"verdict": "QUALIFIED"}, "manifest.json does not follow from the journal."),
        ({"note": "fine"}, "manifest.json does not follow from the journal."),
    ],
    ids=["path", "verdict", "word"],
)
def test_a_manifest_with_its_own_digest_is_recomputed(folder, changes, sentence):
    """It says what the journal gives, and nothing else; no file outside of the folder is read."""
    resealed(folder, **changes)

    assert sentence in verification.complaints(folder)


def test_a_report_holds_files_only(folder, tmp_path):
    """A link to the same bytes elsewhere is not part of what is handed over."""
    (folder / "junit.xml").rename(tmp_path / "elsewhere")
    (folder / "junit.xml").symlink_to(tmp_path / "elsewhere")
    (folder / "nothing").symlink_to(tmp_path / "nowhere")

    assert verification.complaints(folder) == [
        f"{name} is not a file but a link; a report holds files only." for name in ("junit.xml", "nothing")
    ]


@pytest.mark.parametrize(
    ("line", "changes", "sentence"),
    [
        (0, {"run": []}, "journal.jsonl: line 1.run is []; the schema has dict there."),
        (0, {"at": "yesterday"}, "journal.jsonl: line 1.at is 'yesterday'; the schema has a time such as"),
        (1, {"kind": "joke"}, "journal.jsonl: line 2.kind is 'joke'; the schema allows begin, plan, case"),
        (2, {"seconds": 10**400}, "journal.jsonl: line 3.seconds is not a finite number of up to 1e+300."),
        (2, {"outcome": "fine"}, "journal.jsonl: line 3.outcome is 'fine'; the schema allows passed, failed"),
        (2, {"case": 3}, "journal.jsonl: line 3.case is 3; the schema has str there."),
        (2, {"timelines": [{"framework": "paddle", "slots": [1], "memory": None}]}, "journal.jsonl holds what no run"),
        (9, {"left_out": None}, "journal.jsonl: line 10.left_out is None; the schema has dict there."),
    ],
)
def test_a_line_that_no_run_writes_is_named(folder, line, changes, sentence):
    """Also where chain and digests are right."""
    lines = [{**entry} for entry in entries(RESULTS)]
    lines[line].update(changes)
    (folder / "journal.jsonl").unlink()
    journals.write(folder, lines)

    assert verification.complaints(resealed(folder))[0].startswith(sentence)


@pytest.mark.parametrize("line", ["[" * 99999, '{"a":"\\ud800","chain":"0"}', '{"chain":' + "9" * 9999 + "}", "\0"])
def test_a_line_that_is_no_json_of_ours_ends_the_chain(line):
    """It is not an error of the reader's."""
    assert "line 1 of the journal does not follow" in journal.parse(line.encode() + b"\n").broken


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (
            {"mandatory": {"digest": mandatory.digest_of(MANDATORY[:1]), "cases": list(MANDATORY[:1])}},
            "mandatory list",
        ),
        ({"advisory": {"*": "nothing follows from anything"}}, "list of advisory cases"),
        ({"suite": "6" * 64}, "suite"),
    ],
    ids=["mandatory", "advisory", "suite"],
)
def test_rules_of_one_s_own_are_found(tmp_path, changes, word):
    """A suite or a list of one's own is not that of the release."""
    own = sealed(tmp_path, entries(list(map(passed, CASES)), **changes))

    assert verification.complaints(own)[0].startswith(f"journal.jsonl: the {word} is not that of release")


def test_a_part_under_a_fault_is_found(tmp_path):
    """Each part of a run takes place on the same device."""
    first, *rest = entries(list(map(passed, CASES)))
    wrong = {**first, "environment": {**journals.ENVIRONMENT, "fault": "update-halved"}}

    assert verification.complaints(sealed(tmp_path, [wrong, first, *rest])) == [
        "journal.jsonl: the run was gone on with by one with another fault."
    ]


def test_a_report_of_another_release_needs_that_release(tmp_path):
    """Its rules and its page are not known here."""
    other = sealed(tmp_path, entries(list(map(passed, CASES)), ipu_conformance="0.0.1"))

    with pytest.raises(ReportError, match=r"was written by release 0\.0\.1 and .*; verify it with that release"):
        verification.complaints(other)


def test_a_report_that_was_made_again_has_another_digest(folder):
    """What cannot be told from the folder alone: a journal of somebody's own, and all that follows from it."""
    digest = report_folder.manifest_of(folder)["digest"]
    assert verification.complaints(folder, digest) == []
    (folder / "journal.jsonl").unlink()
    report_folder.write(folder, journals.write(folder, entries(list(map(passed, CASES)))))

    assert verification.complaints(folder) == []
    (complaint,) = verification.complaints(folder, digest)
    assert complaint.endswith(f", not {digest}: this is another report.")


def test_what_a_killed_run_left_half_written_is_removed(folder):
    """And what somebody put there is not sealed."""
    (folder / "report.json.0123456789ab.part").write_text("{")
    (folder / "letter.txt").write_text("mine")
    report_folder.write(folder, journal.read(folder / "journal.jsonl").entries)

    assert verification.complaints(folder) == ["letter.txt is not in the manifest."]


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


def test_a_missing_shard_without_a_mandatory_case_is_named_too(tmp_path):
    """A run without it is not whole."""
    parts = [shard(tmp_path, 1, CASES[:2], of=4), shard(tmp_path, 3, CASES[2:5], of=4)]

    verdict = merging.merge(parts, tmp_path / "merged")

    assert verdict.word == "INCOMPLETE"
    assert verdict.reasons == ("2 cases were not run, of 7: shards 2, 4 of 4 are missing.",)


def test_shards_may_have_devices_of_their_own(tmp_path):
    """The merged report names them all."""
    serials = [{**journals.framework("paddle"), "identity": {"serial": each}} for each in ("A-1", "B-2")]
    frameworks = [{**journals.run()["frameworks"], "paddle": each} for each in serials]
    parts = [shard(tmp_path, k + 1, CASES[k::2], of=2, frameworks=frameworks[k]) for k in range(2)]

    assert merging.merge(parts, tmp_path / "merged").word == "QUALIFIED"
    run = report_folder.read_report(tmp_path / "merged")["run"]
    assert run["frameworks"]["paddle"]["identity"] == {"serial": "shard 1: A-1; shard 2: B-2"}
    assert run["frameworks"]["poptorch"]["identity"] == {"serial": "A-17"}


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda out: (out.mkdir(), (out / "letter.txt").touch()), "holds other files; choose a new folder"),
        (lambda out: out.touch(), "is not a folder; choose a new one"),
        (lambda out: journals.write(out, entries(RESULTS)), "holds a report; choose another folder"),
    ],
    ids=["files", "file", "report"],
)
def test_merging_needs_a_new_folder(tmp_path, prepare, sentence):
    """What stands there stays as it is."""
    parts = [shard(tmp_path, 1, CASES[:3]), shard(tmp_path, 2, CASES[3:])]
    prepare(tmp_path / "merged")

    with pytest.raises(ReportError, match=sentence):
        merging.merge(parts, tmp_path / "merged")


def test_shards_of_other_command_lines_leave_nothing(tmp_path):
    """A merge that is refused makes no folder."""
    parts = [shard(tmp_path, 1, CASES[:3], of=2), shard(tmp_path, 2, CASES[4:], of=2)]

    with pytest.raises(ReportError, match="The shards together are not the run that they are parts of"):
        merging.merge(parts, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": "other"}, "differs from .* in its target"),
        ({"ipu_conformance": "0.0.1"}, r"was written by release 0\.0\.1"),
        ({"suite": "6" * 64}, "the suite is not that of release"),
        ({"level": "soak"}, "differs from .* in its level: soak, not premerge; merge takes shards of one run"),
        ({"frameworks": {"paddle": journals.framework("paddle")}}, "in its choice of frameworks: paddle, not paddle, "),
        ({"of": 4}, "differs from .* in its number of shards"),
        ({"number": 1}, "are both shard 1/3"),
        ({"mandatory": {"digest": mandatory.digest_of(CASES), "cases": list(CASES)}}, "not that of release"),
        (
            {"environment": {**journals.ENVIRONMENT, "packages": {"torch": "2.2"}}},
            "in its version of torch: 2.2, not",
        ),
        ({"environment": {**journals.ENVIRONMENT, "fault": "update-halved"}}, "in its fault: update-halved, not none"),
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


def test_a_folder_without_a_report_is_refused(tmp_path):
    """With a sentence."""
    with pytest.raises(ReportError, match="holds no report: No such file"):
        report_folder.read_report(tmp_path)
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(ReportError, match="is not JSON"):
        report_folder.read_report(tmp_path)


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless link"])
def test_what_never_ends_is_not_read(folder, put):
    """A pipe, or a link to a device, in the place of a file."""
    for name in ("manifest.json", "report.json"):
        (folder / name).unlink()
        put(folder / name)

    assert verification.complaints(folder) == ["manifest.json cannot be read."]
    with pytest.raises(ReportError, match=r"holds no report: its report\.json is no regular file; give the folder"):
        report_folder.read_report(folder)


def test_a_folder_of_something_else_cannot_be_verified(tmp_path):
    """Nothing was changed in it: it is no report."""
    with pytest.raises(ReportError, match="holds no report; give the folder of a qualification"):
        verification.complaints(tmp_path)


def test_a_report_is_strict_json(folder):
    """No NaN, which other programs refuse."""

    def refuse(word):
        raise AssertionError(word)

    json.loads((folder / "report.json").read_text(), parse_constant=refuse)
