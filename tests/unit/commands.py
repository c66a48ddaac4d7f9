"""Runs commands of the workloads in processes of their own, and pictures for those that take one.

A process either starts from nothing, or is the fork of one that has imported a framework and done nothing else.
"""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from ipu_conformance.data.places import CACHE_VARIABLE, DATA_VARIABLE


def run(*words, cwd=None, module="ipu_conformance", **variables):
    """What a command of its own process left: exit code, stdout and stderr; no data set of the user is visible."""
    line = [sys.executable, *(["-m", module] if module else []), *words]
    environment = _environment(variables)
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=200, cwd=cwd, env=environment)


def _environment(variables):
    nothing_fetched = os.path.join(tempfile.gettempdir(), "nothing-fetched")
    quiet = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", CACHE_VARIABLE: nothing_fetched}
    environment = {**os.environ, **quiet, **variables}
    environment.pop(DATA_VARIABLE, None)
    return environment


def trained(*words, cwd=None, start=run, **options):
    """The lines on stdout and the text on stderr of a command that has to succeed."""
    process = start(*words, cwd=cwd, **options)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines(), process.stderr


def printed(text, *arguments, cwd=None, start=run):
    """What a program prints that has to succeed."""
    process = start("-c", textwrap.dedent(text), *arguments, cwd=cwd, module=None)
    assert process.returncode == 0, process.stderr
    return process.stdout


# A request is a line of JSON: the folder, the files for what is printed, and the words that would follow ``python``.
_FORKING = """
import atexit, importlib, json, os, runpy, sys, traceback

requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)
for module in sys.argv[1:]:
    importlib.import_module(module)


def perform(folder, printed, said, kind, name, *words):
    os.chdir(folder)
    for number, path in ((1, printed), (2, said)):
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.argv[:] = [kind, *words]
    if kind == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        exec(compile(name, "<string>", "exec"), {"__name__": "__main__"})


def outcome(request):
    try:
        perform(*request)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


for line in requests:
    child = os.fork()
    if not child:
        code = outcome(json.loads(line))
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
"""


class Forks:
    """A process that has imported modules and forks for each program: importing takes longer than they do."""

    def __init__(self, *modules):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FORKING, *modules],
            env=_environment({}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *words, cwd=None, module="ipu_conformance"):
        """What ``run`` gives, from a fork."""
        line = ["-m", module, *words] if module else list(words)
        with tempfile.TemporaryDirectory() as folder:
            out, said = Path(folder, "stdout"), Path(folder, "stderr")
            out.touch()
            said.touch()
            print(json.dumps([str(cwd or folder), str(out), str(said), *line]), file=self._process.stdin, flush=True)
            code = int(self._process.stdout.readline())
            return subprocess.CompletedProcess(line, code, out.read_text(), said.read_text())

    def close(self):
        """Leave no process behind."""
        self._process.kill()
        self._process.communicate()


def write_picture(path, pixels, **options):
    """A PNG of these pixels."""
    from PIL import Image

    Image.fromarray(pixels).save(path, **options)
    return path
