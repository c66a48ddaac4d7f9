"""Runs commands of the workloads in processes of their own, and pictures for those that take one."""

import os
import subprocess
import sys
import textwrap

from ipu_conformance.data.places import DATA_VARIABLE


def run(*words, cwd=None, module="ipu_conformance", **variables):
    """What a command of its own process left: exit code, stdout and stderr; no data set of the user is visible."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", **variables}
    environment.pop(DATA_VARIABLE, None)
    line = [sys.executable, *(["-m", module] if module else []), *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=200, cwd=cwd, env=environment)


def trained(*words, cwd=None, **options):
    """The lines on stdout and the text on stderr of a command that has to succeed."""
    process = run(*words, cwd=cwd, **options)
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines(), process.stderr


def printed(text, *arguments, cwd=None):
    """What a program prints that has to succeed."""
    process = run("-c", textwrap.dedent(text), *arguments, cwd=cwd, module=None)
    assert process.returncode == 0, process.stderr
    return process.stdout


def write_picture(path, pixels, **options):
    """A PNG of these pixels."""
    from PIL import Image

    Image.fromarray(pixels).save(path, **options)
    return path
