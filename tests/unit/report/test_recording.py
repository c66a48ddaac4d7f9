"""A run of pytest leaves a report that survives a kill and can be gone on with, in one process and with workers."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import mandatory, verification
from ipu_conformance.report.journal import Journal, read
from ipu_conformance.report.sharding import Shard, part
from tests.unit.suite.conftest import LEAN, lean, pytester  # noqa: F401  fixtures

CASES = """
    import os, time

    import numpy as np
    import pytest

    from ipu_conformance import check

    pytestmark = pytest.mark.ipu

    class Half:
        allowed = 0.5

        def explain(self):
            return "half"

    @pytest.mark.parametrize("number", range(5))
    def test_passes(number):
        time.sleep(float(os.environ.get("CASE_SECONDS", 0)))

    def test_close():
        check.close(actual=np.array([1.0, 2.25]), expected=np.array([1.0, 2.0]), tolerance=Half(), what="the loss")

    def test_differs():
        check.equal(actual=3, expected=4, what="the count of step 2, replica 1")

    def test_breaks():
        raise OSError("device lost")

    def test_skips():
        pytest.skip("needs 16 IPUs")
"""
OPTIONS = ("-m", "ipu", "-p", "no:cacheprovider", "--ipu-report", "out")


@pytest.fixture
def suite(pytester):  # noqa: F811
    """A folder with nine cases of somebody else's."""
    pytester.makepyfile(test_acme=textwrap.dedent(CASES))
    return pytester


def rows(pytester, folder="out"):  # noqa: F811
    """The cases of a report by the last part of their ids, without times."""
    report = report_folder.read_report(pytester.path / folder)
    return {row.pop("case").rpartition("::")[2]: {**row, "seconds": 0} for row in report["cases"]}


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one-process", "xdist"])
def test_a_run_leaves_a_report(suite, workers):
    """Only the process that was started writes; what checks tell arrives there."""
    run = suite.runpytest_subprocess if workers else suite.runpytest_inprocess
    result = run(*OPTIONS, *workers)

    found = rows(suite)
    assert {name: row["outcome"] for name, row in found.items()} == {
        **{f"test_passes[{number}]": "passed" for number in range(5)},
        "test_close": "passed",
        "test_differs": "failed",
        "test_breaks": "failed",
        "test_skips": "skipped",
    }
    assert found["test_close"]["margin"] == {"used": 0.5, "what": "the loss", "checks": 1}
    assert found["test_differs"]["sentence"] == "the count of step 2, replica 1 is 3 where 4 is expected."
    assert (found["test_differs"]["cause"], found["test_differs"]["place"]) == ("check", "step 2, replica 1")
    assert (found["test_breaks"]["cause"], found["test_breaks"]["sentence"]) == ("error", "OSError: device lost")
    assert found["test_skips"]["sentence"] == "needs 16 IPUs"
    result.stdout.fnmatch_lines(["NOT QUALIFIED: *", "- *test_differs failed: the count of step 2*"])
    assert verification.complaints(suite.path / "out") == []


def test_without_a_report_nothing_of_it_is_imported(suite):
    """A plain run pays nothing."""
    program = (
        "import pytest, sys; pytest.main(['-q', '-m', 'ipu', '-p', 'no:cacheprovider']);"
        "print([name for name in sys.modules if name.startswith('ipu_conformance.report')])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=suite.path
    )

    assert answer.stdout.splitlines()[-1] == "[]"


def test_a_folder_with_a_report_is_not_written_over(suite):
    """It takes --ipu-resume to go on with it."""
    suite.runpytest_inprocess(*OPTIONS, "-k", "passes")
    again = suite.runpytest_inprocess(*OPTIONS)

    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["ERROR: *out holds a report; go on with it (--resume), or choose another folder."])


def test_a_run_that_only_collects_leaves_nothing(suite):
    """It is no run."""
    suite.runpytest_inprocess(*OPTIONS, "--collect-only")

    assert not (suite.path / "out").exists()


def test_a_folder_in_use_is_refused(suite):
    """Another process holds its journal."""
    other = Journal(suite.path / "out" / "journal.jsonl")
    refused = suite.runpytest_inprocess(*OPTIONS)
    other.close()

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["ERROR: Another run writes to *out; wait for its end, or choose another folder."])


def test_a_run_that_stopped_is_gone_on_with(suite):
    """The rest is run, nothing twice, and the report is that of a run in one go."""
    suite.runpytest_inprocess(*OPTIONS, "-x")
    stopped = report_folder.read_report(suite.path / "out")["verdict"]
    suite.runpytest_inprocess(*OPTIONS, "--ipu-resume")
    suite.runpytest_inprocess(*OPTIONS[:-1], "whole")

    assert "2 planned cases were not run, of 9: the run stopped (stopping after 1 failures)." in stopped["reasons"]
    entries = read(suite.path / "out" / "journal.jsonl").entries
    cases = [entry["case"] for entry in entries if entry["kind"] == "case"]
    assert len(cases) == len(set(cases)) == 9
    assert rows(suite) == rows(suite, "whole")
    resumed, whole = (report_folder.read_report(suite.path / name)["verdict"] for name in ("out", "whole"))
    assert resumed == whole


@contextlib.contextmanager
def full_disk(room):
    """No file grows beyond so many bytes; what does not fit is an error, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_run_on_a_full_disk_says_so_and_is_gone_on_with(suite, monkeypatch):
    """First there is no room for a case's line, then none for the page; with room the report is that of one run."""
    monkeypatch.setattr("ipu_conformance.report.mandatory.shipped", lambda: mandatory.Mandatory(frozenset({"a"})))
    options = (*OPTIONS[:-1], "--capture=sys", "-k", "passes or close")
    suite.runpytest_inprocess(*options[:-3], "whole", *options[-3:])
    lines, page = (suite.path.joinpath("whole", name).read_bytes() for name in ("journal.jsonl", "index.html"))
    three_cases = sum(map(len, lines.splitlines(keepends=True)[:5]))
    with full_disk(three_cases + 10):
        first = suite.runpytest_inprocess(*options[:-3], "out", *options[-3:])
    with full_disk((len(lines) + len(page)) // 2):
        second = suite.runpytest_inprocess(*options[:-3], "out", *options[-3:], "--ipu-resume")
    third = suite.runpytest_inprocess(*options[:-3], "out", *options[-3:], "--ipu-resume")

    sentence = "*out* cannot be written: File too large; make room, then go on with --resume.*"
    for stopped in (first, second):
        assert stopped.ret == pytest.ExitCode.INTERNAL_ERROR
        stopped.stdout.fnmatch_lines([sentence])
    assert third.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert rows(suite) == rows(suite, "whole")
    assert verification.complaints(suite.path / "out") == []


def test_a_finished_run_is_finished(suite):
    """Going on with it runs nothing, and is no failure."""
    suite.runpytest_inprocess(*OPTIONS, "-k", "passes")
    before = rows(suite)
    again = suite.runpytest_inprocess(*OPTIONS, "-k", "passes", "--ipu-resume")

    assert rows(suite) == before
    again.stdout.fnmatch_lines(["cases: 5 executed, 0 skipped, 0 left out; areas tested: 1"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--ipu-level", "smoke"], "ERROR: *out was begun with another level: premerge, not smoke; choose another*"),
        (["-k", "passes or close"], "ERROR: *out was begun with other cases, such as test_acme.py::test_close; *"),
        (
            ["--ipu-frameworks", "paddle"],
            "ERROR: *out was begun with another choice of frameworks: *, not paddle; *",
        ),
        (["--ipu-shard", "1/2"], "ERROR: *out was begun with another shard: none, not 1/2; choose another folder."),
        ([], "ERROR: *out was begun with another Python: *, not 3.99.1; choose another folder."),
    ],
    ids=["level", "cases", "frameworks", "shard", "python"],
)
def test_another_run_is_not_gone_on_with(suite, monkeypatch, options, sentence):
    """Two runs in one folder would be nobody's; the report that is there stays as it is."""
    suite.runpytest_inprocess(*OPTIONS, "-k", "passes")
    before = {path: path.read_bytes() for path in (suite.path / "out").iterdir()}
    if not options:
        monkeypatch.setattr("platform.python_version", lambda: "3.99.1")
    other = suite.runpytest_inprocess(*OPTIONS, "--ipu-resume", "-k", "passes", *options)

    assert other.ret == pytest.ExitCode.USAGE_ERROR
    other.stderr.fnmatch_lines([sentence])
    assert {path: path.read_bytes() for path in (suite.path / "out").iterdir()} == before


@pytest.mark.parametrize(("folder", "name"), [("others", "PyTest"), ("_vendor", "PyTest"), ("_vendor", "autocommand")])
def test_a_folder_that_a_library_appends_to_the_path_makes_no_other_run(suite, folder, name):
    """setuptools brings packages along: those that are there already have their version, the others do not count."""
    suite.runpytest_subprocess(*OPTIONS, "-k", "passes")
    information = suite.mkdir(folder) / f"{name}-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    script = f"import sys, pytest; sys.path.append({str(information.parent)!r}); sys.exit(pytest.main())"
    again = suite.run(sys.executable, "-c", script, *OPTIONS, "-k", "passes", "--ipu-resume")

    again.stdout.fnmatch_lines(["cases: 5 executed, 0 skipped, 0 left out; areas tested: 1"])


def test_a_killed_run_loses_the_case_under_way(suite):
    """After kill -9 the journal holds what had ended, and resuming runs the rest."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-k", "passes"]
    environment = {**os.environ, "CASE_SECONDS": "0.2", "PYTEST_ADDOPTS": LEAN}
    run = subprocess.Popen(command, cwd=suite.path, env=environment, stdout=subprocess.DEVNULL)
    journal = suite.path / "out" / "journal.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (journal.exists() and journal.read_bytes().count(b"\n") > 3):
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.wait()
    ended = [entry["case"] for entry in read(journal).entries if entry["kind"] == "case"]

    suite.runpytest_inprocess(*OPTIONS, "-k", "passes", "--ipu-resume")

    cases = [entry["case"] for entry in read(journal).entries if entry["kind"] == "case"]
    assert 2 <= len(ended) < 5
    assert cases[: len(ended)] == ended
    assert len(cases) == len(set(cases)) == 5


def test_a_case_that_kills_its_worker_is_a_line(pytester):  # noqa: F811
    """The crash is its result; the others go on."""
    pytester.makepyfile(
        test_acme="import os, pytest\npytestmark = pytest.mark.ipu\n"
        "def test_a():\n    pass\ndef test_b():\n    os._exit(9)\ndef test_c():\n    pass\n"
    )
    pytester.runpytest_subprocess(*OPTIONS, "-n", "1")

    found = rows(pytester)
    assert {name: row["outcome"] for name, row in found.items()} == {
        "test_a": "passed",
        "test_b": "failed",
        "test_c": "passed",
    }
    assert found["test_b"]["cause"] == "crash"
    assert found["test_b"]["sentence"] == "exit: the case ended its process with exit code 9"


def test_what_cannot_be_collected_makes_a_run_incomplete(suite):
    """The reason names the file."""
    suite.makepyfile(test_broken="import pytest\nimport nothing_of_that_name\n")
    suite.runpytest_inprocess(*OPTIONS)

    verdict = report_folder.read_report(suite.path / "out")["verdict"]
    assert verdict["word"] == "INCOMPLETE"
    why = "test_broken.py could not be collected (ModuleNotFoundError: No module named 'nothing_of_that_name')"
    assert f"9 planned cases were not run, of 9: {why}." in verdict["reasons"]


def test_a_run_that_breaks_off_says_why(suite):
    """A plug-in that raises is no interrupt."""
    suite.makeconftest("def pytest_runtestloop():\n    raise OSError('the driver is gone')\n")
    suite.runpytest_subprocess(*OPTIONS)

    (reason, *_) = report_folder.read_report(suite.path / "out")["verdict"]["reasons"]
    assert reason.endswith("pytest broke off (OSError: the driver is gone).")


def test_shards_are_disjoint_complete_and_the_same_everywhere():
    """Cases that share a compiled program stay together."""
    ops = [f"ops/test_ops_ipu.py::test_forward[paddle-softmax-softmax-float32-{number}]" for number in range(30)]
    cases = [*ops, *(f"paddle/ir/test_a_ipu.py::test_a[{number}]" for number in range(97))]
    parts = [part(cases, Shard(number, 3)) for number in (1, 2, 3)]

    assert sorted(case for each in parts for case in each) == sorted(cases)
    assert all(parts)
    assert [part(cases[::-1], Shard(number, 3)) for number in (1, 2, 3)] == parts
    assert sum(not each.isdisjoint(ops) for each in parts) == 1


def test_shards_of_a_run_are_its_cases(suite):
    """Each writes its own report, and knows how many all have together."""
    reports = []
    for number in (1, 2):
        suite.runpytest_inprocess(*OPTIONS[:-1], f"out{number}", "--ipu-shard", f"{number}/2")
        reports.append(report_folder.read_report(suite.path / f"out{number}"))

    assert sum(report["planned"]["count"] for report in reports) == 9
    assert reports[0]["whole"] == reports[1]["whole"]
    assert reports[0]["whole"]["count"] == 9


@pytest.mark.parametrize("text", ["2", "0/3", "4/3", "a/b"])
def test_what_is_no_shard_is_refused(suite, text):
    """With a sentence."""
    refused = suite.runpytest_inprocess(*OPTIONS, "--ipu-shard", text)

    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([f"ERROR: The shard is '{text}'; write 2/5 for the second of five."])


def test_shard_and_resume_need_a_report(suite):
    """Without a folder they mean nothing."""
    refused = suite.runpytest_inprocess("-m", "ipu", "--ipu-shard", "1/2")

    refused.stderr.fnmatch_lines(
        ["ERROR: --ipu-resume, --ipu-shard and --ipu-waivers need a report: add --ipu-report*"]
    )


def test_the_environment_holds_no_secret(suite, monkeypatch):
    """Variables that matter are there, and what looks like a secret is not."""
    monkeypatch.setenv("POPTORCH_LOG_LEVEL", "ERR")
    monkeypatch.setenv("TF_API_TOKEN", "hidden")
    suite.runpytest_inprocess(*OPTIONS, "-k", "passes")

    where = json.loads((suite.path / "out" / "environment.json").read_text())
    assert where["variables"]["POPTORCH_LOG_LEVEL"] == "ERR"
    assert "TF_API_TOKEN" not in where["variables"]
    assert "pytest" in {name.lower() for name in where["packages"]}
