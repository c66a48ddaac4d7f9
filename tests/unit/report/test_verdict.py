"""A verdict follows from results, the mandatory list and waivers; each reason is a sentence."""

import datetime

import pytest

from ipu_conformance.notes import NOT_SHOWN
from ipu_conformance.report import mandatory
from ipu_conformance.report.folder import recorded, verdict_of
from ipu_conformance.report.mandatory import MandatoryError
from ipu_conformance.report.results import Result
from tests.unit.report.journals import CASES, ENVIRONMENT, MANDATORY, entries, failed, framework, passed

ALL = [passed(case) for case in CASES]
WAIVER = {"case": CASES[2], "reason": "known since 2.1", "link": "https://example.org/7", "until": "2026-12-01"}


def verdict(results, **changes):
    return verdict_of(recorded(entries(results, **changes)))


def test_a_device_that_passes_everything_is_qualified():
    """No reason is given, and the verdict says what it covers."""
    found = verdict(ALL)

    assert (found.word, found.reasons, found.exit_code) == ("QUALIFIED", (), 0)
    assert found.covers.startswith("poptorch (torch 2.1) on acme, paddle (paddle 2.1) on acme; level premerge")


def test_a_failed_case_is_a_reason(capsys):
    """Mandatory or not, with its sentence."""
    found = verdict([*ALL[:3], failed(CASES[3]), *ALL[4:]])

    assert (found.word, found.exit_code) == ("NOT QUALIFIED", 1)
    assert found.reasons == (f"{CASES[3]} failed: the loss of step 0, replica 2 differs: actual 1.5, expected 1.25.",)


def test_many_failures_are_counted():
    """The report has all of them."""
    cases = [f"poptorch/feeding/test_batching_ipu.py::test_order[{number}]" for number in range(25)]

    reasons = verdict([*ALL, *map(failed, cases)], planned=[*CASES, *cases]).reasons

    assert len(reasons) == 21
    assert reasons[-1] == "5 more cases failed."


@pytest.mark.parametrize(
    ("results", "changes", "reason"),
    [
        (ALL[:-2], {"why": "the run was interrupted"}, "2 planned cases were not run, of 7: the run was interrupted."),
        (ALL[:-1], {"ended": False}, "1 planned case was not run, of 7: the run was stopped before its end."),
        (
            ALL[1:],
            {"planned": CASES[1:], "left_out": {CASES[0]: "they need level qualify"}},
            "1 mandatory case was not run: they need level qualify.",
        ),
        (
            ALL[1:],
            {"planned": CASES[1:], "shard": "2/3"},
            "1 mandatory case was not run: this is shard 2/3; join all shards with `ipu-conformance report merge`.",
        ),
        (
            [],
            {"planned": [], "why": "the run was interrupted"},
            "2 mandatory cases were not run: the run was interrupted.",
        ),
        (ALL, {"environment": {**ENVIRONMENT, "fault": "update-halved"}}, "The fault update-halved was on: "),
    ],
    ids=["interrupted", "killed", "left out", "shard", "collecting", "fault"],
)
def test_what_was_not_run_makes_a_verdict_incomplete(results, changes, reason):
    """It is neither a pass nor a failure of the device."""
    found = verdict(results, **changes)

    assert (found.word, found.exit_code) == ("INCOMPLETE", 3)
    assert len(found.reasons) == (1 if results else 2)
    assert found.reasons[0].startswith(reason)


def hidden(case):
    return Result(case, "skipped", 0.1, f"{NOT_SHOWN}its compiled program")


def test_what_a_target_does_not_show_is_not_covered():
    """An accelerator is not bound to show more than the vendor's API does, and whole areas look at more."""
    found = verdict([hidden(CASES[0]), *ALL[1:4], hidden(CASES[4]), *ALL[5:]])

    assert (found.word, found.reasons) == ("QUALIFIED", ())
    assert found.remarks == ("Not covered: 2 cases were skipped: the target does not show its compiled program.",)


def test_a_device_that_shows_nothing_is_not_qualified():
    """No case was executed."""
    found = verdict([hidden(case) for case in CASES])

    assert (found.word, found.reasons) == ("INCOMPLETE", ("No case was executed.",))


def test_the_emulator_shows_everything():
    """What it does not show has gone unnoticed, and is a gap."""
    paddle = {**framework("paddle"), "kind": "emulator"}

    found = verdict(
        [hidden(CASES[0]), *ALL[1:4], hidden(CASES[4]), *ALL[5:]],
        frameworks={"poptorch": framework("torch"), "paddle": paddle},
    )

    assert (found.word, found.remarks) == ("INCOMPLETE", ())
    assert found.reasons[0] == "1 mandatory case was skipped: the target does not show its compiled program."


def test_what_a_framework_comes_without_is_not_covered():
    """It is a remark, not a gap: another version of the framework has it."""
    found = verdict(ALL[1:], planned=CASES[1:], left_out={CASES[0]: "the framework comes without tensorflow_estimator"})

    assert (found.word, found.reasons) == ("QUALIFIED", ())
    assert found.remarks == (
        "Not covered: 1 mandatory case was not run: the framework comes without tensorflow_estimator.",
    )


def test_a_skipped_mandatory_case_is_a_gap():
    """Its reason is given once for all that share it; an area with nothing executed is named too."""
    skipped = [Result(case, "skipped", 0.0, sentence="needs 16 IPUs, the target offers 4") for case in MANDATORY]

    found = verdict([*skipped, *ALL[2:]])

    assert found.word == "INCOMPLETE"
    assert found.reasons == (
        "2 mandatory cases were skipped: needs 16 IPUs, the target offers 4.",
        "Area training/updates of paddle was not tested: every case of it was skipped (1).",
    )


def test_a_failure_outweighs_a_gap():
    """Both are said."""
    found = verdict([failed(CASES[0])], why="the run was interrupted")

    assert found.word == "NOT QUALIFIED"
    assert len(found.reasons) == 2


def test_a_run_of_one_framework_is_judged_by_that_framework_s_list():
    """The verdict says what it covers."""
    torch = {"poptorch": framework("torch")}
    found = verdict(ALL[1:4], planned=CASES[1:4], frameworks=torch)

    assert found.word == "QUALIFIED"
    assert found.covers.startswith("poptorch (torch 2.1) on acme; level")


def test_nothing_executed_is_not_a_pass():
    """Not even where nothing is mandatory."""
    nothing = {"digest": mandatory.digest_of([]), "cases": []}

    assert verdict([], planned=[], mandatory=nothing).reasons == ("No case was executed.",)


def test_an_advisory_case_fails_no_device():
    """Its failure is said."""
    found = verdict([*ALL[:2], failed(CASES[2]), *ALL[3:]], advisory={"training/*::test_losses[[]*": "from experience"})

    assert found.word == "NOT QUALIFIED"

    found = verdict([*ALL[:2], failed(CASES[2]), *ALL[3:]], advisory={"training/*::test_losses[*": "from experience"})

    assert found.word == "QUALIFIED"
    assert found.remarks == (f"Advisory: {CASES[2]} failed, which fails no device (from experience).",)


def test_a_waiver_in_force_excuses_a_failure():
    """It is said, with reason and link."""
    found = verdict([*ALL[:2], failed(CASES[2]), *ALL[3:]], waivers=[WAIVER])

    assert found.word == "QUALIFIED"
    assert found.remarks == (
        f"{CASES[2]} failed and is waived until 2026-12-01: known since 2.1. https://example.org/7",
    )


@pytest.mark.parametrize(
    ("waiver", "results", "word", "remark"),
    [
        ({"until": "2026-11-16"}, [*ALL[:2], failed(CASES[2]), *ALL[3:]], "NOT QUALIFIED", "ended on 2026-11-16"),
        ({}, ALL, "QUALIFIED", "is stale, the case does not fail any more: take it out."),
        ({"case": "nowhere.py::test_*"}, ALL, "QUALIFIED", "is unused, no case of the run has that id: take it out."),
    ],
    ids=["ended", "stale", "unused"],
)
def test_a_waiver_that_no_longer_applies_is_reported(waiver, results, word, remark):
    """It excuses nothing."""
    found = verdict(results, waivers=[{**WAIVER, **waiver}])

    assert found.word == word
    assert len(found.remarks) == 1
    assert remark in found.remarks[0]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ({}, "a list of waivers"),
        ([{"case": "a"}], "waiver 1 of w.json is to have case, reason, link, until"),
        ([WAIVER, {**WAIVER, "link": " "}], "waiver 2 of w.json has an empty word"),
        ([{**WAIVER, "case": "*"}], r"waiver 1 of w.json is of '\*'; name the file, as in file.py::name"),
        ([{**WAIVER, "case": "training/*::test_a"}], "use \\* in the name only."),
        ([{**WAIVER, "until": "soon"}], "waiver 1 of w.json ends on 'soon'; write 2027-01-31."),
    ],
)
def test_a_waiver_without_reason_link_or_day_is_refused(rows, sentence):
    """A waiver is data that somebody answers for."""
    with pytest.raises(MandatoryError, match=sentence):
        mandatory.waivers_of(rows, "w.json")


def test_waivers_come_from_a_file(tmp_path):
    """As JSON."""
    (tmp_path / "w.json").write_text(f"[{WAIVER!s}]".replace("'", '"'))

    assert [waiver.until for waiver in mandatory.waivers(tmp_path / "w.json")] == [datetime.date(2026, 12, 1)]
    with pytest.raises(MandatoryError, match=r"none\.json cannot be read"):
        mandatory.waivers(tmp_path / "none.json")
    (tmp_path / "w.json").write_text("[" * 99_999)
    with pytest.raises(MandatoryError, match=r"w\.json is not JSON"):
        mandatory.waivers(tmp_path / "w.json")
