"""qualify asks the target first, shows how far it is, and ends with the verdict's exit code."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest

from ipu_conformance import cli
from ipu_conformance.cli import qualify
from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import preflight, verification
from ipu_conformance.report.journal import FILE, Journal
from ipu_conformance.report.preflight import PreflightError
from ipu_conformance.selection import Selection, select
from ipu_conformance.targets import Choice, Target
from ipu_conformance.workers.leases import LeaseError, Leases
from tests.unit.report.test_recording import full_disk

CASES = """
    import os, signal, time

    import pytest

    pytestmark = pytest.mark.ipu

    @pytest.mark.parametrize("number", range(4))
    def test_passes(number):
        time.sleep(float(os.environ.get("CASE_SECONDS", 0)))

    def test_last():
        if os.environ.get("CASE_KILLS") == "run":
            os.kill(os.getppid(), signal.SIGKILL)
        if os.environ.get("CASE_KILLS"):
            os.kill(os.getpid(), signal.SIGKILL)
        assert not os.environ.get("CASE_FAILS"), "the device is gone"
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The suite is five cases, in one process, and the target answers; every case is mandatory for nobody."""
    (tmp_path / "test_acme.py").write_text(textwrap.dedent(CASES))
    suite = str(tmp_path / "test_acme.py")
    original = qualify.command

    def command(args, selection):
        words = original(args, selection)
        words[3] = suite
        words[words.index("-n") + 1] = "0"
        return [*words, "-p", "no:hypothesispytest", "-p", "no:anyio"]

    monkeypatch.setattr(qualify, "command", command)
    monkeypatch.setattr(qualify, "examine", lambda selection, say: say("preflight: fine"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


ARGUMENTS = ("qualify", "--target", "emulator", "--level", "premerge", "--out", "report")


def test_a_qualification_ends_with_its_verdict(small, capsys, monkeypatch):
    """A case fails: NOT QUALIFIED, 1."""
    monkeypatch.setenv("CASE_FAILS", "1")
    assert cli.main(ARGUMENTS) == 1

    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "preflight: fine"
    assert any(line.startswith("5 of 5 cases (100% of the work), 1 failed") for line in shown)
    assert any(line.startswith("NOT QUALIFIED: poptorch (torch ") for line in shown)
    assert shown[-1] == "report: report/index.html"
    assert verification.complaints(small / "report") == []


def test_a_run_that_dies_is_judged_by_its_journal_and_gone_on_with(small, capsys, monkeypatch):
    """kill -9 of pytest itself leaves what had ended; --resume runs the rest."""
    monkeypatch.setenv("CASE_KILLS", "run")
    assert cli.main(ARGUMENTS) == 3
    verdict = report_folder.read_report(small / "report")["verdict"]
    assert "1 planned case was not run, of 5: the run was stopped before its end." in verdict["reasons"]

    monkeypatch.delenv("CASE_KILLS")
    assert cli.main([*ARGUMENTS, "--resume"]) == 3
    report = report_folder.read_report(small / "report")
    assert (report["counts"]["passed"], report["times"]["runs"]) == (5, 2)
    assert verification.complaints(small / "report") == []


def test_a_case_that_takes_its_process_with_it_is_one_line(small, capsys, monkeypatch):
    """The process that goes on repeats the reports of the others, and writes none of them again."""
    monkeypatch.setenv("CASE_KILLS", "case")
    cli.main(ARGUMENTS)

    report = report_folder.read_report(small / "report")
    assert (report["counts"]["passed"], report["counts"]["failed"]) == (4, 1)
    assert verification.complaints(small / "report") == []


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGHUP,), (signal.SIGINT, signal.SIGINT)],
    ids=["interrupt", "end", "closed terminal", "twice"],
)
def test_an_interrupt_leaves_a_report(small, capsys, monkeypatch, signals):
    """Control-C, and once more if what is under way takes long; the exit code is the shell's."""
    monkeypatch.setenv("CASE_SECONDS", "0.5")

    def interrupt():
        deadline = time.monotonic() + 120
        path = small / "report" / FILE
        while time.monotonic() < deadline and not (path.exists() and path.read_bytes().count(b"\n") > 2):
            time.sleep(0.02)
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(0.1)

    threading.Thread(target=interrupt).start()
    assert cli.main(ARGUMENTS) == 130

    report = report_folder.read_report(small / "report")
    assert 1 <= report["counts"]["passed"] < 5
    assert any("not run, of 5: the run was " in reason for reason in report["verdict"]["reasons"])
    assert verification.complaints(small / "report") == []


def test_a_run_that_pytest_refuses_has_no_verdict(small, capsys):
    """The verdict of the report that is there is not this run's."""
    cli.main(ARGUMENTS)
    capsys.readouterr()

    assert cli.main([*ARGUMENTS, "--resume", "--level", "smoke"]) == 2
    answer = capsys.readouterr()
    assert "was begun with another level: premerge, not smoke; choose another folder." in answer.err
    assert "on emulator; level" not in answer.out
    assert verification.complaints(small / "report") == []

    assert cli.main([*ARGUMENTS[:-1], "other", "--", "--nonsense"]) == 2
    assert capsys.readouterr().err == "ipu-conformance: error: unrecognized arguments: --nonsense\n"


def test_a_disk_that_was_full_for_a_moment_is_told(small, capsys):
    """A case's line did not fit, and the smaller report does."""
    cli.main([*ARGUMENTS[:-1], "whole"])
    sizes = {path.name: path.stat().st_size for path in (small / "whole").iterdir() if path.is_file()}
    assert sizes.pop(FILE) - 10 > max(sizes.values())
    capsys.readouterr()

    with full_disk((small / "whole" / FILE).stat().st_size - 500):
        assert cli.main(ARGUMENTS) == 2

    sentence = "report/journal.jsonl cannot be written: File too large; make room, then go on with --resume.\n"
    assert capsys.readouterr().err.endswith(sentence)


def test_a_run_hears_an_interrupt_behind_a_shell_s_ampersand():
    """A shell starts what runs in the background with interrupts ignored, which pytest is not to inherit."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    try:
        answer = subprocess.check_output([sys.executable, "-c", program], preexec_fn=qualify._of_this_process)
    finally:
        signal.signal(signal.SIGINT, before)

    assert answer == b"True\n"


@pytest.mark.parametrize(
    ("prepare", "options", "sentence"),
    [
        (lambda out: Journal(out / FILE).close(), [], "report holds a report; go on with it (--resume), or choose"),
        (lambda out: (out.mkdir(), (out / "letter.txt").touch()), [], "report holds other files; choose a new folder"),
        (lambda out: out.touch(), [], "report is not a folder; choose a new one with --out."),
        (lambda out: out.touch(), ["--out", "report/a"], "report/a cannot be written: Not a directory; choose another"),
        (lambda out: None, ["-n", "0"], "-n is 0; give a whole number from 1."),
        (lambda out: None, ["--waivers", "none.json"], "none.json cannot be read: No such file or directory."),
        (lambda out: None, ["--shard", ""], "The shard is ''; write 2/5 for the second of five."),
        (lambda out: None, ["--shard", f"1/{10**9}"], "The shard is '1/1000000000'; write 2/5 for the second of five."),
        (lambda out: None, ["--shard", "3/2"], "The shard is '3/2'; write 2/5 for the second of five."),
        (lambda out: None, ["--frameworks", "caffe"], "--ipu-frameworks names 'caffe'; choose from poptorch"),
    ],
    ids=["report", "files", "file", "below", "workers", "waivers", "no-shard", "shards", "shard", "framework"],
)
def test_what_cannot_begin_is_refused_at_once(small, capsys, prepare, options, sentence):
    """Before the target is asked."""
    prepare(small / "report")

    assert cli.main([*ARGUMENTS, *options]) == 2
    answer = capsys.readouterr()
    assert sentence in answer.err
    assert "preflight" not in answer.out


def test_the_level_may_come_from_the_environment(small, capsys, monkeypatch):
    """As it does for pytest."""
    monkeypatch.setenv("IPU_CONFORMANCE_LEVEL", "quick")

    assert cli.main(["qualify", "--out", "report"]) == 2
    assert "--ipu-level is 'quick'; choose one of smoke" in capsys.readouterr().err


def test_a_fault_is_said_before_anything_runs(small, capsys, monkeypatch):
    """Nobody waits an hour to learn that the device was wrong on purpose."""
    monkeypatch.setenv("IPU_CONFORMANCE_FAULT", "update-halved")

    assert cli.main(ARGUMENTS) == 3
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "fault: update-halved is on, the device is wrong on purpose (IPU_CONFORMANCE_FAULT)"
    assert shown[1] == "preflight: fine"


def test_without_any_framework_nothing_begins(small, capsys, monkeypatch):
    """The sentence has the reason for each."""
    monkeypatch.setattr(Selection, "frameworks", ())

    assert cli.main([*ARGUMENTS]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ipu-conformance: error: No framework can run (poptorch: ")
    assert said.endswith("); install one, and see `ipu-conformance doctor`.\n")


def test_a_folder_in_use_is_refused(small, capsys):
    """Also for --resume."""
    other = Journal(small / "report" / FILE)

    assert cli.main([*ARGUMENTS, "--resume"]) == 2
    other.close()
    assert "Another run writes to report" in capsys.readouterr().err


def test_the_suite_runs_with_its_own_configuration_only(tmp_path):
    """Neither a pytest.ini nor a conftest.py that stand about have a say."""
    arguments = cli._parser(["qualify"]).parse_args(["qualify", "--out", str(tmp_path), "--fail-early", "-n", "3"])
    words = qualify.command(arguments, select({"target": "emulator", "level": "smoke"}, {}))
    options = dict(zip(words, words[1:]))

    assert options["-c"] == os.devnull
    assert options["--confcutdir"] == words[3]
    assert (options["-n"], options["--ipu-level"], words[-1]) == ("3", "smoke", "-x")


@pytest.fixture(scope="module")
def liar(tmp_path_factory):
    """Where a target is installed whose probe says yes to everything."""
    site = tmp_path_factory.mktemp("site")
    (site / "liar.py").write_text(
        textwrap.dedent(
            """
            import os, time

            from ipu_conformance.targets import Availability, Emulator, Target


            class Boaster(Emulator):
                def activate(self, framework):
                    super().activate(framework)
                    from paddle.static import IpuStrategy

                    set_graph_config = IpuStrategy.set_graph_config

                    def refusing(strategy, num_ipus=1, *others, **named):
                        if num_ipus > 2:
                            raise RuntimeError(f"{num_ipus} devices are not free")
                        set_graph_config(strategy, num_ipus, *others, **named)

                    IpuStrategy.set_graph_config = refusing


            class Liar(Target):
                def probe(self, framework):
                    return Availability(True, "of course")

                def activate(self, framework):
                    if framework.name == "paddle":
                        time.sleep(60)
                    if framework.name == "tensorflow":
                        os.abort()
                    if "EXITING" in os.environ:
                        os._exit(0)
                    raise RuntimeError("no such device\\nat all")
            """
        )
    )
    information = site / "liar-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: liar\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[ipu_conformance.targets]\nliar = liar:Liar\nboaster = liar:Boaster\n"
    )
    return site


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("poptorch", "poptorch on liar does not answer: RuntimeError: no such device; see `ipu-conformance doctor"),
        ("paddle", "paddle on liar gave no answer within 2 s; see"),
        ("tensorflow", "tensorflow on liar died with signal 6; see"),
    ],
)
def test_a_target_whose_probe_lies_is_found_out_before_the_cases(liar, monkeypatch, name, sentence):
    """An error, a hang and a crash are one sentence each."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(liar), os.environ.get("PYTHONPATH", "")]))

    with pytest.raises(PreflightError, match=sentence):
        preflight.require_answer(name, "liar", 1, time_limit=2 if name == "paddle" else 60)


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one-process", "xdist"])
def test_plain_pytest_finds_out_a_lying_target_too(liar, monkeypatch, tmp_path, workers):
    """Once, and before it leaves a report, instead of by each case."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(liar), os.environ.get("PYTHONPATH", "")]))
    options = ["--pyargs", "ipu_conformance.suite.poptorch", "-m", "ipu", "--ipu-target", "liar", *workers]
    command = [sys.executable, "-m", "pytest", *options, "--ipu-report", "out"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert answer.returncode == pytest.ExitCode.USAGE_ERROR
    assert answer.stderr.startswith("ERROR: poptorch on liar does not answer: RuntimeError: no such device; see")
    assert "test_" not in answer.stdout + answer.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("ipus", "sentence"), [(2, ""), (7, "on 4 of the 7 IPUs that it offers, RuntimeError: 4 devices")]
)
def test_a_target_with_fewer_ipus_than_it_says_is_found_out(liar, monkeypatch, ipus, sentence):
    """Once, and not by each case that needs so many."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(liar), os.environ.get("PYTHONPATH", "")]))
    refused = pytest.raises(PreflightError, match=f"paddle on boaster does not answer: {sentence}")

    with refused if sentence else contextlib.nullcontext():
        preflight.require_answer("paddle", "boaster", ipus, time_limit=60)


def test_preflight_holds_the_devices_that_it_asks(monkeypatch, tmp_path):
    """Another run's cases keep theirs until they end, and wait while all are asked at once."""
    monkeypatch.setenv("IPU_CONFORMANCE_LEASES", str(tmp_path))
    target: Any = Target()
    target.name, target.devices, asked = "eight", lambda: [f"d{number}" for number in range(8)], []
    leases = Leases("eight", target.devices())

    def answer(name, target, ipus, time_limit):
        with pytest.raises(LeaseError, match="d3 is held by process"), leases.of(["d3"], 1, 0.0, "a case"):
            pass
        asked.append((name, target, ipus))

    monkeypatch.setattr(preflight, "require_answer", answer)
    monkeypatch.setattr(preflight, "discover", lambda: {"eight": target})
    choice = Choice("paddle", "eight", "hardware", 8, "of course")
    selection = Selection("eight", "smoke", (choice,), (), None)
    said = []
    preflight.examine(selection, said.append)

    assert asked == [("paddle", "eight", 8)]
    assert re.fullmatch(r"preflight: paddle on eight answers on 8 IPUs \(\d+\.\d s\)", said[0])
    with leases.of(["d3"], 1, 0.0, "a case"):
        pass


def test_a_target_that_ends_the_process_has_not_answered(liar, monkeypatch):
    """Whatever its exit code."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(liar), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("EXITING", "1")

    with pytest.raises(PreflightError, match="poptorch on liar does not answer: nothing was said; see"):
        preflight.require_answer("poptorch", "liar", 1, time_limit=60)
