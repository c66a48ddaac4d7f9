"""``ipu-conformance emulate`` runs a program as python itself does, and the emulator is there under the vendor's name.

Programs here ask where ``poptorch`` would come from instead of importing it, except in the one test that needs it.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from ipu_conformance.cli import emulate as command
from ipu_conformance.emulator import emulate

if importlib.util.find_spec("torch") is None:
    pytest.skip("the emulated poptorch needs torch", allow_module_level=True)

EMULATE = [sys.executable, "-m", "ipu_conformance", "emulate"]
ASK = "from importlib.util import find_spec; found = find_spec('poptorch'); "
EMULATED = ASK + "print(found is not None and type(found.loader).__name__ == '_AliasLoader')"
CLEAN = ("PYTHONPATH", emulate.VARIABLE, emulate.TARGET_VARIABLE, "IPU_CONFORMANCE_FAULT")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that the programs run in, with no trace of emulation in the environment."""
    for name in CLEAN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(folder, text, name="program.py"):
    """A program in the folder."""
    (folder / name).write_text(textwrap.dedent(text))
    return name


def answer(*words, **options):
    """What a command printed and how it ended."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(list(words), capture_output=True, text=True, timeout=120, check=False, **options)


STATE = """
import json, os, sys
import __main__
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path, "name": __name__, "file": __main__.__file__,
    "package": __package__, "executable": sys.executable, "stdin": sys.stdin.read(),
    "modules": sorted(set(sys.modules) & {"torch", "numpy", "argparse"}),
}))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["program.py", "--version", "-m", "--", "--ipu-target", "acme", ""],
        ["inner/program.py", "a b"],
        ["-m", "inner.program", "--help", "-m", "--", "-m", "--"],
        ["inner"],
        ["-"],
    ],
    ids=["script", "script in a folder", "module", "folder", "standard input"],
)
def test_a_program_sees_what_python_shows_it(folder, arguments):
    """argv, cwd, the whole of sys.path, __main__ and standard input are those of plain python; no torch is imported."""
    (folder / "inner").mkdir()
    for name in ("program.py", "inner/program.py", "inner/__main__.py"):
        program(folder, STATE, name)
    typed = STATE if arguments == ["-"] else "typed by the user"
    plain = answer(sys.executable, *arguments, input=typed, stdin=None)
    emulated = answer(*EMULATE, *arguments, input=typed, stdin=None)

    assert plain.returncode == 0, plain.stderr
    assert json.loads(emulated.stdout) == json.loads(plain.stdout)
    assert emulated.stderr == ""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a.py", "--", "-h"], ["a.py", "--", "-h"]),
        (["--", "a.py", "--"], ["a.py", "--"]),
        (["-m", "a", "--", "-m"], ["-m", "a", "--", "-m"]),
        (["--ipu-target", "emulator", "-m", "a", "-h"], ["-m", "a", "-h"]),
        (["--ipu-target", "emulator", "a.py", "--ipu-target", "b"], ["a.py", "--ipu-target", "b"]),
    ],
    ids=" ".join,
)
def test_options_of_the_command_end_where_the_program_begins(given, expected):
    """Everything from the program on is the program's."""
    parser = argparse.ArgumentParser()
    command.configure(parser)

    assert command._arguments(parser.parse_args(given)) == expected


def test_the_vendors_name_leads_to_the_emulator(folder, monkeypatch):
    """A program that imports poptorch gets the emulated one and its submodules, with the faults that are named."""
    monkeypatch.setenv("IPU_CONFORMANCE_FAULT", "update-halved")
    text = """
        import poptorch, poptorch.options
        from ipu_conformance.emulator.faults import catalogue
        print(poptorch.Options(), poptorch.__name__, list(catalogue.active))
    """
    emulated = answer(*EMULATE, program(folder, text))

    assert (emulated.returncode, emulated.stderr) == (0, "")
    assert emulated.stdout == "Options() ipu_conformance.emulator.poptorch.api ['update-halved']\n"


ENDINGS = {
    "an exit code": "raise SystemExit(7)",
    "an exit message": "import sys; sys.exit('no more data')",
    "an exception": "def train():\n    raise ValueError('wrong batch')\n\ntrain()",
    "a syntax error": "train(",
    "os._exit": "import os; os._exit(9)",
    "its own signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_under_python(folder, ending):
    """Exit code, signal and traceback are those of plain python, with no frame of ours."""
    name = program(folder, ENDINGS[ending])
    plain = answer(sys.executable, name)
    emulated = answer(*EMULATE, name)

    assert plain.returncode != 0
    assert (emulated.returncode, emulated.stdout, emulated.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signals_reach_the_program_itself(folder, number):
    """A signal sent to the command is handled by the program's own handler, in the same process."""
    text = """
        import os, signal, sys, time
        def end(number, frame):
            print(signal.Signals(number).name, os.getpid(), flush=True)
            sys.exit(3)
        signal.signal(signal.SIGTERM, end)
        try:
            print("ready", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            end(signal.SIGINT, None)
    """
    words = [*EMULATE, program(folder, text)]

    def listen():
        # A test run in the background of a shell ignores SIGINT, and its children would inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=listen) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        shown, _ = process.communicate(timeout=60)

    assert shown == f"{signal.Signals(number).name} {process.pid}\n"
    assert process.returncode == 3


def test_child_processes_are_emulated_too(folder):
    """What a program starts with subprocess or as a spawned process finds the emulator, with its own __main__."""
    text = f"""
        import multiprocessing, subprocess, sys
        from importlib.util import find_spec

        def work(queue):
            queue.put([type(find_spec("poptorch").loader).__name__, __name__])

        if __name__ == "__main__":
            print(subprocess.run([sys.executable, "-c", {EMULATED!r}], capture_output=True, text=True).stdout.strip())
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=work, args=(queue,))
            process.start()
            print(queue.get(timeout=60))
            process.join()
    """
    emulated = answer(*EMULATE, program(folder, text))

    assert emulated.stdout.splitlines() == ["True", "['_AliasLoader', '__mp_main__']"]
    assert (emulated.returncode, emulated.stderr) == (0, "")


def test_workers_of_pytest_are_emulated_too(folder):
    """Tests under pytest-xdist find the emulator in every worker."""
    text = "from importlib.util import find_spec\n\ndef test_a():\n    assert find_spec('poptorch')\n"
    program(folder, text, "test_a.py")
    lean = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]  # quicker to start
    emulated = answer(*EMULATE, "-m", "pytest", "-q", "-n", "1", *lean, "test_a.py")

    assert "1 passed" in emulated.stdout, emulated.stdout + emulated.stderr


def test_a_sitecustomize_of_the_users_own_still_runs(folder, monkeypatch):
    """The next sitecustomize on the path runs after ours, and is the one in sys.modules."""
    own = folder / "own"
    own.mkdir()
    program(own, "import sys\nsys.customised = True\n", "sitecustomize.py")
    monkeypatch.setenv("PYTHONPATH", str(own))
    name = program(folder, f"import sys, sitecustomize; print(sys.customised, sitecustomize.__file__); {EMULATED}")
    emulated = answer(*EMULATE, name)

    assert emulated.stdout.splitlines() == [f"True {own / 'sitecustomize.py'}", "True"]


@pytest.fixture
def sdk(folder, monkeypatch):
    """A poptorch that is not ours, as a vendor's SDK would install it."""
    (folder / "sdk" / "poptorch").mkdir(parents=True)
    program(folder, "VENDOR = True\n", "sdk/poptorch/__init__.py")
    monkeypatch.setenv("PYTHONPATH", str(folder / "sdk"))
    return folder / "sdk"


@pytest.mark.usefixtures("sdk")
def test_a_real_sdk_is_not_shadowed(folder):
    """Beside an SDK the command refuses in one sentence and the program does not start."""
    emulated = answer(*EMULATE, program(folder, "print('started')"))

    assert (emulated.returncode, emulated.stdout) == (2, "")
    assert emulated.stderr == (
        "ipu-conformance: error: poptorch unknown is installed, and a real SDK is not shadowed; run the program with "
        "python, or say --ipu-target emulator\n"
    )


@pytest.mark.usefixtures("sdk")
def test_beside_a_real_sdk_the_emulator_is_used_when_it_is_named(folder):
    """--ipu-target emulator shadows the SDK, in child processes too."""
    text = f"{EMULATED}\nimport subprocess, sys\nsubprocess.run([sys.executable, '-c', {EMULATED!r}])"
    emulated = answer(*EMULATE, "--ipu-target", "emulator", program(folder, text))

    assert emulated.stdout.splitlines() == ["True", "True"]


def test_a_child_that_has_a_real_sdk_keeps_it(folder, sdk):
    """Where a child process finds an SDK that its parent did not have, the SDK is imported."""
    child = "import poptorch; print(poptorch.VENDOR)"
    inherited = emulate.environment(["poptorch"], os.environ, named=False)

    assert str(sdk) in inherited["PYTHONPATH"]
    assert answer(sys.executable, "-c", child, env=inherited).stdout == "True\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no-such.py"], "there is no program 'no-such.py'; name a script, or a module with -m"),
        ([], "no program is given; name a script, or a module with -m"),
        (["-m"], "-m needs the name of a module, as in: ipu-conformance emulate -m package.train"),
    ],
    ids=["missing script", "nothing", "no module"],
)
@pytest.mark.usefixtures("folder")
def test_a_program_that_is_not_there_is_one_sentence(arguments, sentence):
    """Nothing to run is exit code 2, as python's own."""
    emulated = answer(*EMULATE, *arguments)

    assert (emulated.returncode, emulated.stdout) == (2, "")
    assert emulated.stderr == f"ipu-conformance: error: {sentence}\n"


@pytest.mark.usefixtures("folder")
def test_a_package_that_is_not_installed_is_found_by_child_processes():
    """A checkout that no environment knows still emulates: its own folder is added at the end of the path."""
    inherited = emulate.environment(["poptorch"], {"PATH": os.environ["PATH"]}, named=False)
    base = getattr(sys, "_base_executable", sys.executable)
    emulated = answer(base, "-c", f"{ASK}print(type(found.loader).__name__)", env=inherited)

    assert emulated.stdout == "_AliasLoader\n", emulated.stderr


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ({}, ["{}"]),
        ({"PYTHONPATH": ""}, ["{}"]),
        ({"PYTHONPATH": "/a"}, ["{}", "/a"]),
        ({"PYTHONPATH": os.pathsep.join(["/a", "{}", "/b"])}, ["{}", "/a", "/b"]),
    ],
    ids=["none", "empty", "one", "nested"],
)
def test_the_startup_folder_comes_first_and_once(before, expected):
    """PYTHONPATH keeps its entries in order; an empty one does not become the current folder."""
    inherited = {name: value.replace("{}", str(emulate.STARTUP)) for name, value in before.items()}
    environment = emulate.environment(["poptorch"], inherited, named=False)

    assert environment["PYTHONPATH"].split(os.pathsep) == [
        place.replace("{}", str(emulate.STARTUP)) for place in expected
    ]
    assert environment[emulate.VARIABLE] == "poptorch"
