"""A case that takes its process with it costs one case, is named, and fails the run."""

import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipu_conformance.asking import SELECTION
from ipu_conformance.selection import Selection
from ipu_conformance.suite_files import suite_folder
from ipu_conformance.workers import guard, hooks
from ipu_conformance.workers.watch import Watch, loss, opened, patience

ROOT = Path(__file__).resolve().parents[3]
LOSSES = """
import ctypes, os, signal
import pytest

pytestmark = pytest.mark.ipu

def test_first():
    pass

@pytest.mark.timeout(1)
def test_hang():
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)  # PyDLL keeps the interpreter's lock
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)

def test_exit():
    os._exit(0)

def test_kill():
    os.kill(os.getpid(), signal.SIGKILL)

def test_last():
    pass
"""
SENTENCES = {
    "exit": "exit: the case ended its process with exit code 0",
    "hang": "hang: the case did not end within its time limit, nor when it was interrupted",
    "kill": "crash: signal 9 (SIGKILL) ended the process of the case",
}


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one-process", "xdist"])
def test_a_lost_case_is_one_failure(pytester, workers):
    """A native hang, an exit with code 0 and a kill are named, the other cases run, and the exit code is not 0."""
    pytester.makeconftest("from ipu_conformance.workers import watch\n\nwatch.LEAST_GRACE = 0.25\n")
    pytester.makepyfile(test_losses=LOSSES)

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *workers)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(
        [
            '  File "*test_losses.py", line 13 in test_hang',
            "cases: 5 executed, 3 of them lost, 0 skipped, 0 left out; areas tested: 1",
            *(f"lost: test_losses.py::test_{name}: {sentence}" for name, sentence in SENTENCES.items()),
        ]
    )


FILLING = """
import os, signal
import pytest

pytestmark = pytest.mark.ipu

def test_first(tmp_path):
    (tmp_path / "small").write_bytes(bytes(2**16))

def test_fills(tmp_path):
    (tmp_path / "large").write_bytes(bytes(2**23))

def test_lost():
    os.kill(os.getpid(), signal.SIGKILL)

def test_second(tmp_path):
    (tmp_path / "small").write_bytes(bytes(2**16))
"""


def small_disk(place, size, command):
    """The command line that runs another with a small disk at a place, which is gone with it."""
    mounted = f"mount -t tmpfs -o size={size} tmpfs {shlex.quote(str(place))}"
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", f"{mounted} && exec {shlex.join(command)}"]


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one-process", "xdist"])
def test_a_case_that_fills_the_disk_is_one_failure(pytester, monkeypatch, workers):
    """It is named, its files are removed, the cases after it have room, and the exit code is not 0."""
    disk = pytester.mkdir("disk")
    if subprocess.run(small_disk(disk, 2**21, ["true"]), capture_output=True, check=False).returncode:
        pytest.skip("this system does not let a test mount a disk")
    pytester.makepyfile(test_filling=FILLING)
    for name in ("TMPDIR", "PYTEST_DEBUG_TEMPROOT"):
        monkeypatch.setenv(name, str(disk))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *workers]

    result = pytester.run(*small_disk(disk, 2**21, command))

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*full disk*",
            "*test_fills0 has no room left: what the case wrote there is removed",
            "failed: test_filling.py::test_fills: OSError: [[]Errno 28[]] No space left on device",
            "lost: test_filling.py::test_lost: crash: signal 9 (SIGKILL) ended the process of the case",
        ]
    )


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one-process", "xdist"])
def test_a_limit_that_ends_between_two_phases_costs_one_case(pytester, workers):
    """The interruption waits for a phase of the case: in a plug-in it would end the run."""
    pytester.makeconftest(
        "import signal, time\n\ndef pytest_runtest_makereport(item, call):\n"
        "    if item.name == 'test_b' and call.when == 'setup':\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0.01)\n        time.sleep(0.2)\n"
    )
    pytester.makepyfile(
        "import pytest\npytestmark = pytest.mark.ipu\ndef test_a():\n    pass\n"
        "@pytest.mark.timeout(40)\ndef test_b():\n    import time\n    time.sleep(5)\n"
        "def test_c():\n    pass\n"
    )

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *workers)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["failed: *test_b: Failed: Timeout (>40.0s) from pytest-timeout."])


def test_a_run_that_ends_early_fails(pytester):
    """Every selected case has to finish, whatever exit code a case asks for."""
    pytester.makepyfile(
        "import pytest\npytestmark = pytest.mark.ipu\ndef test_a():\n    pass\n"
        "def test_b():\n    pytest.exit('enough', returncode=0)\ndef test_c():\n    pass\n"
    )

    result = pytester.runpytest_inprocess("-m", "ipu")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["FAILED: The run ended early: 1 of 3 selected tests have finished; *test_b is among those that have not."]
    )


def test_a_run_may_remove_its_temporary_files(pytester):
    """The exit code is that of the run, also where the folder for temporary files goes with it."""
    pytester.makeconftest((ROOT / "conftest.py").read_text())
    pytester.makepyfile(
        "import os, pathlib\nfrom multiprocessing import util\nimport pytest\n\n@pytest.mark.ipu\n"
        "def test_a():\n    pathlib.Path('place').write_text(util.get_temp_dir())\n"
    )

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:pytester")

    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK
    assert "Traceback" not in result.stderr.str()
    place = Path((pytester.path / "place").read_text())
    assert place.parent.name.startswith("ipu-conformance-")
    assert not place.parent.exists()


def test_an_exit_after_the_last_case_fails_the_run(pytester):
    """A process that ends with code 0 before the run has ended did not pass."""
    pytester.makepyfile(
        "import os, pytest\n\n@pytest.fixture(scope='session')\ndef device():\n    yield\n    os._exit(0)\n\n"
        "@pytest.mark.ipu\ndef test_a(device):\n    pass\n"
    )
    pytester.makeconftest("def pytest_sessionfinish():\n    import os\n    os._exit(0)\n")

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*test_a was lost (exit: *", "The run ended between two cases, *"])


def test_a_worker_without_a_folder_for_its_files_runs_cases(tmp_path):
    """One on another machine says neither where it hangs nor on which devices."""
    nowhere = tmp_path / "missing" / "gw0"
    with opened(nowhere) as stacks, opened(nowhere) as devices:
        watch = Watch(stacks, devices)
        watch.note_devices(["d3", "d5"])
        watch.note_devices([])


def test_a_case_has_time_for_its_own_end():
    """The interruption of pytest-timeout comes first; a process whose end nobody saw is a crash."""
    assert patience(1) >= 2
    assert patience(300) > 300
    assert loss("", None).word == "crash"


def test_a_lost_case_of_the_suite_says_how_to_run_it_alone(tmp_path):
    """Of a run without workers and of one with them."""
    nodeid = "ipu/ops/test_ops_ipu.py::test_forward[D2]"
    config: Any = SimpleNamespace(
        rootpath=suite_folder().parent,
        args=[],
        stash={SELECTION: Selection("acme", "smoke", (), (), None)},
        option=SimpleNamespace(maxworkerrestart=None),
        pluginmanager=SimpleNamespace(getplugin=lambda name: None),
        add_cleanup=lambda close: None,
    )
    item: Any = SimpleNamespace(
        nodeid=nodeid, path=suite_folder() / "ops" / "test_ops_ipu.py", location=("", 0, ""), keywords={}, config=config
    )
    node = SimpleNamespace(config=config, gateway=SimpleNamespace(id="gw3", _io=None))
    crashed: Any = SimpleNamespace(node=node)
    xdist_hooks = hooks.XdistHooks()
    xdist_hooks._stacks = tmp_path
    xdist_hooks.pytest_handlecrashitem(nodeid, crashed)

    for report in (guard.lost_report(item, loss("", -11)), crashed):
        said = str(report.longrepr).splitlines()
        assert said[0].startswith("crash: ")
        assert said[-1] == "reproduce: ipu-conformance case 'ops/test_ops_ipu.py::test_forward[D2]' --ipu-target acme"
