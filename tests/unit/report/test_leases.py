"""Devices have one holder at a time across processes; a failed case is repeated on each of eight devices."""

import json
import os
import stat
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from ipu_conformance.report import folder as report_folder
from ipu_conformance.report import repetitions, verification
from ipu_conformance.workers import leases
from ipu_conformance.workers.leases import LeaseError, Leases
from tests.unit.suite.conftest import lean, pytester  # noqa: F401  fixtures

DEVICES = ("d0", "d1", "d2", "d3", "d4")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Leases of the tests' own."""
    monkeypatch.setenv(leases.FOLDER_VARIABLE, str(tmp_path / "leases"))


def test_a_device_has_one_holder():
    """A second one gets others, and waits in vain when there are too few; the sentence names the holder."""
    pool = Leases("acme", DEVICES)
    with pool.of(DEVICES, 3, 1.0, "case a") as first, pool.of(DEVICES, 2, 1.0, "case b") as second:
        assert (first, second) == (("d0", "d1", "d2"), ("d3", "d4"))
        with pytest.raises(LeaseError, match=r"1 of 5 devices of acme were not free within 0\.05 s: d0 is held by pro"):
            pool.of(DEVICES, 1, 0.05, "case c").__enter__()
    with pool.of(DEVICES, 5, 1.0, "case d") as all_of_them:
        assert all_of_them == DEVICES


def test_more_devices_than_there_are_are_refused():
    """At once."""
    with pytest.raises(LeaseError, match="6 devices of acme were asked for, and there are 5"):
        Leases("acme", DEVICES).of(DEVICES, 6, 9.0, "case").__enter__()


def test_the_lease_of_a_crashed_holder_is_free():
    """The system drops its locks, and a child that it has forked and that lives on has none."""
    program = (
        "import os, time; from ipu_conformance.workers.leases import Leases\n"
        f"lease = Leases('acme', {DEVICES!r}).of({DEVICES!r}, 5, 1.0, 'a case')\n"
        "lease.__enter__()\n"
        "reading, writing = os.pipe()\n"
        "if not os.fork():\n"
        "    os.close(1); os.write(writing, b'.'); time.sleep(2); os._exit(0)\n"
        "os.read(reading, 1); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    pool = Leases("acme", DEVICES)
    with pytest.raises(LeaseError, match="held by process"):
        pool.of(DEVICES, 1, 0.05, "case").__enter__()
    holder.kill()
    holder.wait()
    holder.stdout.close()

    with pool.of(DEVICES, 5, 1.0, "case") as held:
        assert held == DEVICES


def test_a_child_that_outlives_a_case_keeps_no_lease():
    """What the case gave back is free."""
    pool = Leases("acme", DEVICES)
    with pool.of(DEVICES, 5, 1.0, "case"):
        child = subprocess.Popen(["sleep", "2"], close_fds=False)
        forked = os.fork()
        if not forked:
            time.sleep(2)
            os._exit(0)
    try:
        with pool.of(DEVICES, 5, 0.05, "another"):
            pass
    finally:
        child.kill()
        child.wait()
        os.kill(forked, 9)
        os.waitpid(forked, 0)


def test_all_users_of_a_machine_share_the_locks(tmp_path):
    """Whatever the umask of the first of them; and nobody removes what another has made."""
    before = os.umask(0o077)
    try:
        Leases("acme", DEVICES).of(DEVICES, 2, 1.0, "case").__enter__()
    finally:
        os.umask(before)

    folder = tmp_path / "leases" / "acme"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)] == [0o1777] * 2
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o666}
    assert {each.name for each in folder.iterdir()} == {"gate", "d0.lock", "d1.lock"}


def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path):
    """It says which, why and what to do."""
    (tmp_path / "leases").write_text("a file")

    with pytest.raises(LeaseError, match=r"acme cannot be kept in \S+/leases/acme: .*; make it writable"):
        Leases("acme", DEVICES).require()


@pytest.mark.parametrize("names", [("/dev/ipu0",), ("a+b",), ("a b",), ("",), ("d0", "d1", "d0")])
def test_names_that_cannot_be_told_apart_are_refused(names):
    """They become files, and reports join them with +."""
    with pytest.raises(LeaseError, match="acme names a device"):
        Leases("acme", names)


def test_who_needs_all_devices_gets_a_turn():
    """Small requests that come later queue behind it."""
    pool, order = Leases("acme", DEVICES), []
    first = pool.of(DEVICES, 2, 5.0, "small")
    first.__enter__()

    def lease(name, count):
        with pool.of(DEVICES, count, 5.0, name):
            order.append(name)

    large = threading.Thread(target=lease, args=("large", 5))
    large.start()
    time.sleep(0.1)
    small = threading.Thread(target=lease, args=("late", 1))
    small.start()
    time.sleep(0.1)
    assert order == []
    first.__exit__(None, None, None)
    large.join()
    small.join()

    assert order == ["large", "late"]


TARGET = """
    import ctypes
    import os
    import signal
    import time

    from ipu_conformance.targets import Availability, Target

    PINNED = []


    class Eight(Target):
        kind = "emulator"  # what a vendor's model is like; it has devices all the same
        pins = True

        def probe(self, framework):
            return Availability(framework.name == "poptorch", "eight devices, one flaky, one hanging")

        def ipus(self):
            return 8

        def devices(self):
            return [f"d{number}" for number in range(8)]

        def pin(self, devices):
            PINNED[:] = devices


    RUNS = {}


    def hang():
        if not os.environ.get("HANGS_IN_C"):
            signal.setitimer(signal.ITIMER_REAL, 0.05)  # the limit of the case ends at once
            time.sleep(60)
        library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
        library.pthread_mutex_lock(mutex)
        library.pthread_mutex_lock(mutex)


    def compute():
        '''What a program on the pinned devices gives: d3 is wrong every second time, d5 hangs.'''
        for device in PINNED:
            RUNS[device] = RUNS.get(device, 0) + 1
        if "d5" in PINNED:
            hang()
        return 41 if "d3" in PINNED and RUNS["d3"] % 2 else 42


    def die():
        '''What a program gives that d0 computes wrongly and that d2 never ends.'''
        if "d2" in PINNED:
            os.kill(os.getpid(), signal.SIGSEGV)
        return 41 if "d0" in PINNED else 42
"""
CASES = """
    import eight
    import pytest

    pytestmark = [pytest.mark.ipu, pytest.mark.poptorch, pytest.mark.timeout(20)]

    def test_on_one():
        assert eight.compute() == 42

    @pytest.fixture(scope="session")
    def kept():
        return {}

    @pytest.mark.ipus(4)
    def test_on_four(kept):
        assert kept.setdefault("value", eight.compute()) == 42, "four devices give something else"

    @pytest.fixture
    def answer():
        assert eight.compute() == 43, "no device gives 43"

    def test_wrong_everywhere(answer):
        pass
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Where the target with eight devices is installed."""
    site = tmp_path_factory.mktemp("site")
    (site / "eight.py").write_text(textwrap.dedent(TARGET))
    information = site / "eight-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: eight\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[ipu_conformance.targets]\neight = eight:Eight\n")
    return site


def test_the_report_names_the_flaky_and_the_hanging_device(pytester, installed, monkeypatch):  # noqa: F811
    """Failed cases are repeated twice on each device, with workers; one that fails everywhere is told from them.

    What a fixture of the session keeps is computed again.
    """
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]))
    pytester.makepyfile(test_devices=textwrap.dedent(CASES))
    options = ["-m", "ipu", "--ipu-target", "eight", "--ipu-report", "out", "-n", "1", "-p", "no:cacheprovider"]
    pytester.runpytest_subprocess(*options)

    report = report_folder.read_report(pytester.path / "out")
    outcomes = {row["case"].rpartition("::")[2]: row["outcome"] for row in report["cases"]}
    assert outcomes == {"test_on_one": "passed", "test_on_four": "failed", "test_wrong_everywhere": "failed"}
    remarks = report["verdict"]["remarks"]
    assert sum(each.startswith("Device ") for each in remarks) == 2
    assert any(each.startswith("Device d3 failed 6 of 8 repetitions of cases that pass on others.") for each in remarks)
    assert any(each.startswith("Device d5 failed 8 of 8 repetitions of cases that pass on others.") for each in remarks)
    assert any("test_wrong_everywhere: repeated on each device it failed on all of them." in each for each in remarks)
    (row,) = [each for each in report["cases"] if each["case"].endswith("test_on_four")]
    assert row["devices"] == ["d0", "d1", "d2", "d3"]
    assert [each["devices"] for each in report["cases"] if each["case"].endswith("everywhere")] == [["d0"]]
    assert row["repeated"].startswith("repeated on each device it failed on d0+d1+d2+d3 (1 of 2), ")
    junit = (pytester.path / "out" / "junit.xml").read_text()
    assert '<property name="repetitions.d5" value="10 of 10 failed"' in junit
    assert row["repeated"] in junit
    assert verification.complaints(pytester.path / "out") == []


NATIVE = """
    import eight
    import pytest

    pytestmark = [pytest.mark.ipu, pytest.mark.poptorch]

    def test_first():
        assert eight.die() == 42, "a device gives something else"

    @pytest.mark.ipus(3)
    def test_on_three():
        assert eight.compute() == 42

    @pytest.mark.timeout(1)
    @pytest.mark.ipus(6)
    def test_on_six():
        assert eight.compute() == 42

    @pytest.mark.timeout(1)
    @pytest.mark.ipus(7)
    def test_on_seven():
        assert eight.compute() == 42
"""


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one-process", "xdist"])
def test_a_device_that_hangs_in_native_code_is_named(pytester, installed, monkeypatch, workers):  # noqa: F811
    """Its cases are lost with their processes, and say which devices they held."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("HANGS_IN_C", "1")
    pytester.makeconftest("from ipu_conformance.workers import watch\n\nwatch.LEAST_GRACE = 0.25\n")
    pytester.makepyfile(test_devices=textwrap.dedent(NATIVE))
    options = ["-m", "ipu", "--ipu-target", "eight", "--ipu-report", "out", "-p", "no:cacheprovider", *workers]
    result = pytester.runpytest_subprocess(*options)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    report = report_folder.read_report(pytester.path / "out")
    sentences = {row["case"].rpartition("::")[2]: row.get("sentence", "") for row in report["cases"]}
    assert [case for case, said in sentences.items() if said.startswith("hang: ")] == ["test_on_seven", "test_on_six"]
    assert sentences["test_on_six"].endswith("(on d0+d1+d2+d3+d4+d5)")
    remarks = report["verdict"]["remarks"]
    assert "Device d5 was in use by 2 of 2 cases that crashed or hung in native code." in remarks
    assert "Device d6 was in use by 1 of 2 cases that crashed or hung in native code." in remarks
    assert sentences["test_first"].startswith("a device gives something else")
    assert report["devices"] == [
        {"device": "d0", "failed": 2, "of": 2},
        {"device": "d1", "failed": 0, "of": 2},
        {"device": "d2", "failed": 1, "of": 1},
    ]
    assert "Device d2 failed 1 of 1 repetitions of cases that pass on others." in remarks
    assert verification.complaints(pytester.path / "out") == []


def test_a_run_that_is_killed_between_repetitions_makes_them_when_it_goes_on(pytester, installed, monkeypatch):  # noqa: F811
    """Before the first, after a few and after the last: which device is to blame does not depend on the kill."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]))
    case = """
        import eight
        import pytest

        @pytest.mark.ipu
        @pytest.mark.poptorch
        def test_that_a_device_fails():
            assert "d0" not in eight.PINNED, "d0 gives something else"
    """
    pytester.makepyfile(test_devices=textwrap.dedent(case))
    options = ["-m", "ipu", "--ipu-target", "eight", "--ipu-report", "out", "-p", "no:cacheprovider"]
    pytester.runpytest_subprocess(*options)
    journal = pytester.path / "out" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["begin", "plan", "case", *["repeats"] * 8, "end"]
    wanted = report_folder.read_report(pytester.path / "out")

    for kept in (3, 6, 11):
        journal.write_text("".join(lines[:kept]))
        pytester.runpytest_subprocess(*options, "--ipu-resume")
        again = [json.loads(line)["kind"] for line in journal.read_text().splitlines()[kept:]]
        assert again.count("case") == (kept < 11)
        assert [*kinds[:kept], *again].count("repeats") == 8
        report = report_folder.read_report(pytester.path / "out")
        assert (
            report["devices"]
            == wanted["devices"]
            == [{"device": f"d{number}", "failed": 0 if number else 2, "of": 2} for number in range(8)]
        )
        assert report["verdict"] == wanted["verdict"]
        assert [row["repeated"] for row in report["cases"]] == [row["repeated"] for row in wanted["cases"]]
        assert verification.complaints(pytester.path / "out") == []


def test_waiting_for_devices_takes_no_time_of_the_case(pytester, installed, monkeypatch):  # noqa: F811
    """A case with a shorter limit than its wait passes."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]))
    case = """
        import pytest

        @pytest.mark.ipu
        @pytest.mark.poptorch
        @pytest.mark.timeout(0.5)
        def test_late():
            pass
    """
    path = pytester.makepyfile(test_late=textwrap.dedent(case))
    devices = [f"d{number}" for number in range(8)]
    lease = Leases("eight", devices).of(devices, 8, 1.0, "another run")
    lease.__enter__()
    command = [sys.executable, "-m", "pytest", "-m", "ipu", "--ipu-target", "eight", "-p", "no:cacheprovider", path]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while leases._locked(gate := os.open(leases.folder_of("eight") / "gate", os.O_RDWR)):
        os.close(gate)
        time.sleep(0.02)
    time.sleep(1.0)
    lease.__exit__(None, None, None)

    assert "1 passed" in run.communicate()[0]


def test_what_repetitions_tell_is_words():
    """Everywhere, nowhere, or on some devices; and not more than they tell."""
    good, bad = ["passed", "passed"], ["failed", "passed"]

    assert repetitions.sentence({"d0": good, "d1": good}) == "repeated on each device it passed everywhere"
    assert repetitions.sentence({"d0": bad, "d1": bad}) == "repeated on each device it failed on all of them"
    assert repetitions.sentence({"d0": good, "d1": bad, "d2": good}) == (
        "repeated on each device it failed on d1 (1 of 2) only"
    )
    assert repetitions.sentence({"d0": good, "d1": good}, ("d1",)) == (
        "it failed on d1, and repeated on each device it passed everywhere"
    )
    assert repetitions.sentence({"d0": good, "d1": bad, "d2": ["not executed", "not executed"]}) == (
        "repeated on each device it failed on d1 (1 of 2) only"
    )
    assert repetitions.sentence({"d0": ["not executed"]}) == "no device was free to repeat it"
    assert repetitions.sentence({"d0+d1+d2": bad}) == (
        "repeated on d0+d1+d2 (1 of 2) alone: no other device to compare with"
    )
    assert repetitions.remarks({"a": {"d0": good, "d1": good}, "b": {"d0+d1": bad}, "c": {"d0": bad, "d1": bad}}) == [
        "a: repeated on each device it passed everywhere.",
        "b: repeated on d0+d1 (1 of 2) alone: no other device to compare with.",
        "c: repeated on each device it failed on all of them.",
    ]
    assert repetitions.by_device({"a": {"d0": bad, "d1": good}, "b": {"d0": good, "d1": good}}) == [
        {"device": "d0", "failed": 1, "of": 4},
        {"device": "d1", "failed": 0, "of": 4},
    ]
