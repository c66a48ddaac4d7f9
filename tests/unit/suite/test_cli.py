"""The command line answers bad input with one sentence and imports only what a command needs."""

import argparse
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ipu_conformance import __version__, cli, command_line
from ipu_conformance.cli import case, doctor
from ipu_conformance.errors import ConformanceError
from ipu_conformance.text_table import text_table
from tests.unit.commands import run

ROOT = Path(__file__).resolve().parents[3]


def test_without_a_command_the_usage_is_shown(capsys):
    """No command is a usage error."""
    with pytest.raises(SystemExit) as stop:
        cli.main([])

    assert stop.value.code == 2
    assert "usage: ipu-conformance" in capsys.readouterr().err


def test_help_lists_every_command(capsys):
    """Every row of the table stands in the help."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])

    shown = capsys.readouterr().out
    assert stop.value.code == 0
    assert [command.name for command in cli.COMMANDS if command.name not in shown] == []


def options_without_help(parser, name):
    """The flags of a parser and of its actions that --help only names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each, below in action.choices.items():
                yield from options_without_help(below, f"{name} {each}")
        elif action.option_strings and not action.help:
            yield f"{name} {action.option_strings[0]}"


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_flag_says_what_it_is_for(command):
    """In the words of --help."""
    parser = argparse.ArgumentParser()
    importlib.import_module(command.module).configure(parser)

    assert list(options_without_help(parser, command.name)) == []


def test_the_version_is_printed(capsys):
    """--version prints the version."""
    with pytest.raises(SystemExit):
        cli.main(["--version"])

    assert capsys.readouterr().out == f"ipu-conformance {__version__}\n"


def test_bad_input_is_one_sentence_and_exit_code_2(monkeypatch, capsys):
    """A ConformanceError becomes one line on stderr."""

    def refuse(args):
        raise ConformanceError("That cannot be used; give something else.")

    monkeypatch.setattr(doctor, "run", refuse)

    assert cli.main(["doctor"]) == command_line.EXIT_BAD_INPUT
    assert capsys.readouterr() == ("", "ipu-conformance: error: That cannot be used; give something else.\n")


def test_an_interrupt_is_not_a_traceback(monkeypatch, capsys):
    """Control-C ends a command with the shell's code for it."""

    def interrupt(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "run", interrupt)

    assert cli.main(["doctor"]) == command_line.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "ipu-conformance: interrupted\n"


def test_an_interrupt_that_an_import_made_an_error_of_is_an_interrupt(capsys, monkeypatch):
    """Native code that is being imported swallows it and says that it could not be initialized."""

    def imported(args):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr(doctor, "run", imported)
    before = signal.getsignal(signal.SIGINT)

    assert cli.main(["doctor"]) == command_line.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "ipu-conformance: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is before


IMPORTED = """
import signal, sys
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    sys.stderr.write("the files of this framework are damaged")
    raise
"""


def test_what_a_framework_says_of_an_interrupted_import_is_not_shown(capsys, monkeypatch, tmp_path):
    """A module that is being imported blames its files; afterwards the command can speak again."""
    (tmp_path / "interrupted_framework.py").write_text(IMPORTED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "run", lambda args: importlib.import_module("interrupted_framework"))

    assert cli.main(["doctor"]) == command_line.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "ipu-conformance: interrupted\n"


def test_a_reader_that_goes_away_is_no_error_message():
    """Output into a closed pipe ends quietly."""
    program = f"{sys.executable} -m ipu_conformance doctor --json | head -c 1"
    answer = subprocess.run(program, shell=True, capture_output=True, text=True, check=True)

    assert (answer.stdout, answer.stderr) == ("{", "")


def test_doctor_tells_each_framework_its_target_and_each_data_set_its_place(capsys):
    """The table has a row for each framework and each data set."""
    assert cli.main(["doctor"]) == 0

    shown = capsys.readouterr().out
    for word in ("poptorch", "tensorflow", "paddle", "mnist", "cifar10", "synthetic-digits", "targets: emulator"):
        assert word in shown


def test_doctor_json_is_data(capsys):
    """--json prints what the table shows."""
    assert cli.main(["doctor", "--json", "--ipu-target", "hardware"]) == 0

    findings = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in findings["frameworks"]] == ["poptorch", "tensorflow", "paddle"]
    assert {row["target"] for row in findings["frameworks"]} <= {"hardware", None}
    assert findings["ipu_conformance"] == __version__


def test_doctor_refuses_an_unknown_target(capsys):
    """A target that does not exist is bad input."""
    assert cli.main(["doctor", "--ipu-target", "acme"]) == 2
    assert "There is no target 'acme'" in capsys.readouterr().err


def test_columns_are_as_wide_as_their_widest_entry():
    """A table's columns are as wide as their widest cell; the first row may be underlined, and cells stand right."""
    rows = [["a", "bb"], ["ccc", "d"]]

    assert text_table(rows) == ["a    bb", "ccc  d"]
    assert text_table(rows, ruled=True) == ["a    bb", "---  --", "ccc  d"]
    assert text_table(rows, align=str.rjust) == ["  a  bb", "ccc   d"]


CASE = "training/test_replication_ipu.py::test_replicas_hold_identical_weights[paddle-mlp-D2-G4-R3-momentum]"
"""A quick case of the framework that is quickest to import."""


def test_a_failing_case_says_how_to_run_it_alone(monkeypatch):
    """A failure's last line, pasted into a shell, runs that case and no other; a fault of the device fails it again."""
    monkeypatch.setenv("IPU_CONFORMANCE_FAULT", "update-skipped-on-last-replica")
    command = [sys.executable, "-m", "ipu_conformance", "case", CASE, "--ipu-target", "emulator"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)

    assert answer.returncode == 1
    assert "cases: 1 executed, 0 skipped, 0 left out; areas tested: 1" in answer.stdout
    assert "differs between replicas 0 and 2 after step 2" in answer.stdout
    assert f"reproduce: ipu-conformance case '{CASE}' --ipu-target emulator\n" in answer.stdout


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_case_ends_as_its_run_does(monkeypatch, code):
    """The command's exit code is that of pytest, which is given the case, the target and every level."""
    started = []

    def run(command, **options):
        started.append(command)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", run)

    assert cli.main(["case", CASE, "--ipu-target", "emulator"]) == code
    ((*_, name, level, thorough, _, _, _, _, _, target, chosen),) = started
    assert name.endswith(CASE)
    assert (level, thorough, target, chosen) == ("--ipu-level", "soak", "--ipu-target", "emulator")


def test_a_case_runs_where_the_environment_says(monkeypatch):
    """The command's own default does not hide it."""
    started = []
    monkeypatch.setattr(
        subprocess, "run", lambda command, **_: started.extend(command) or SimpleNamespace(returncode=0)
    )

    assert cli.main(["case", CASE]) == 0
    assert "--ipu-target" not in started


def test_a_case_heeds_nothing_that_is_about_other_runs(monkeypatch):
    """Options for pytest, or a choice of frameworks, might leave it out."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    monkeypatch.setenv("IPU_CONFORMANCE_FRAMEWORKS", "tensorflow")
    started = []
    monkeypatch.setattr(
        subprocess, "run", lambda *run, **how: started.append((*run, how)) or SimpleNamespace(returncode=0)
    )

    assert cli.main(["case", CASE]) == 0
    ((command, options),) = started
    assert command[-2:] == ["--ipu-frameworks", "auto"]
    assert "PYTEST_ADDOPTS" not in options["env"]


def test_a_file_is_no_case(capsys):
    """Of a file with 10,000 cases, the one that is meant has a name."""
    assert cli.main(["case", CASE.partition("::")[0]]) == 2
    assert (
        "training/test_replication_ipu.py is a file of cases; give one of them as file.py::name"
        in capsys.readouterr().err
    )


def test_a_case_that_does_not_exist_is_one_sentence(capsys):
    """A wrong id names what is wrong with it."""
    assert cli.main(["case", "replication/convnet"]) == 2
    assert "The suite has no file 'replication/convnet'" in capsys.readouterr().err


def test_a_case_that_its_file_does_not_have_is_a_sentence_at_the_end(capsys):
    """pytest says which modules it has looked at, and the command what to do."""
    id = f"{case.EXAMPLE.partition('[')[0]}[7]"
    answer = run("case", id)

    assert answer.returncode == 2
    assert answer.stderr.endswith(f"ipu-conformance: error: The suite has no case {id!r}; a failure names it whole.\n")


def test_an_interrupt_while_a_command_is_imported_is_one_line(monkeypatch, capsys):
    """Importing takes seconds where a framework is behind it."""

    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("ipu_conformance.cli.importlib.import_module", interrupt)

    assert cli.main(["doctor"]) == command_line.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "ipu-conformance: interrupted\n"


@pytest.mark.parametrize("count", ["-3", "0", "many"])
def test_a_number_of_samples_below_one_is_refused_at_once(count, capsys, monkeypatch):
    """Before any data is read."""
    monkeypatch.setattr("ipu_conformance.data.loading.load", lambda *a, **b: pytest.fail("data was read"))
    with pytest.raises(SystemExit) as stop:
        cli.main(["data", "export", "synthetic-digits", "--to", "nowhere", f"--count={count}"])

    assert stop.value.code == 2
    assert f"'{count}' is no number of samples; ask for one or more" in capsys.readouterr().err


GRAPH = b'{"maingraph":[{"type":"\xce\xb1","name":"","inputs":[],"outputs":[],"attributes":{}}]}'


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">/dev/full", 2, "ipu-conformance: error: the output cannot be written: No space left on device\n"),
        (">&-", 2, "ipu-conformance: error: stdout is closed; open it, or send it to /dev/null\n"),
        (">/dev/null", 0, ""),
    ],
    ids=["full", "closed", "ascii"],
)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_an_output_that_cannot_be_written_is_one_sentence(tmp_path, redirection, code, said):
    """A full disk and a closed stdout end a command without a traceback; a sign that stdout lacks is escaped."""
    path = tmp_path / "graph.popart"
    path.write_bytes(GRAPH)

    command = f'exec "{sys.executable}" -m ipu_conformance ir show "{path}" {redirection}'
    variables = {**os.environ, "PYTHONIOENCODING": "ascii"}
    answer = subprocess.run(["sh", "-c", command], env=variables, capture_output=True, text=True, check=False)

    assert (answer.returncode, answer.stderr) == (code, said)


@pytest.mark.parametrize(
    "words",
    [
        ["ir", "convert", "graph.popart", "graph.json"],
        ["faults", "page", "-o", "faults.html"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_file_that_does_not_fit_on_the_disk_is_one_sentence(tmp_path, monkeypatch, capsys, words):
    """And no part of it stays."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.popart").write_bytes(GRAPH)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, hard))
    try:
        code = cli.main(words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (said,) = capsys.readouterr().err.splitlines()

    assert code == 2
    assert said.startswith("ipu-conformance: error: ")
    assert said.endswith("File too large")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["graph.popart"]


def test_a_read_only_checkout_passes(pytester, monkeypatch):
    """Neither pytest nor Hypothesis can keep what has failed there, and that is no failure."""
    (pytester.path / "pytest.ini").write_text((ROOT / "pytest.ini").read_text())
    pytester.makepyfile(
        "from hypothesis import given, strategies as st\n\n@given(st.integers())\ndef test_a(number):\n    pass\n"
    )
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", "/dev/null/examples")

    result = pytester.runpytest_subprocess(".", "-o", "cache_dir=/dev/null/cache")

    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("words", "spared"),
    [
        (["--help"], {"numpy", "pytest", "jinja2"}),
        (["qualify", "--help"], {"numpy", "pytest", "jinja2"}),
        (["report", "verify", "nowhere"], {"numpy", "pytest", "jinja2"}),
        (["doctor"], {"pytest", "jinja2"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_imports_what_it_needs(words, spared, tmp_path):
    """Commands that run no case start at once: without pytest, and without any framework."""
    program = (
        "import sys\nfrom ipu_conformance.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=tmp_path, check=True
    )

    assert set(answer.stderr.splitlines()[-1].split()) & {*spared, "xdist", "torch", "tensorflow", "paddle"} == set()
