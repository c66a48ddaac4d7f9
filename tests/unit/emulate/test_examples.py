"""Programs for IPU builds of Paddle, among them the examples, run unmodified on the emulator."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ipu_conformance.emulator import emulate
from tests.unit.emulate.test_paddle import TRAIN

if importlib.util.find_spec("paddle") is None:
    pytest.skip("the examples for Paddle need paddle", allow_module_level=True)

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "paddle"
NAMES = ["fluid_pictures", "static_regression", "dynamic_points"]
"""A program that makes Programs comes before the one that is dynamic."""
RUN_ALL = """
import logging, os, runpy, sys
logging.basicConfig(format="%(name)s: %(message)s", level=logging.INFO, stream=sys.stdout)
import paddle
examples, folder, *names = sys.argv[1:]
print("## alone", flush=True)
child = os.fork()  # as good as a process, before Paddle has done anything
if not child:
    sys.argv = ["train.py", "--epochs", "3"]
    runpy.run_path(f"{folder}/train.py", run_name="__main__")
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
for name in names:
    for action in ("train", "infer"):
        paddle.disable_static()
        print("##", name, action)
        sys.argv = [name, action, f"{folder}/{name}"]
        runpy.run_path(f"{examples}/{name}.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each program printed, by name and action; one process runs them all, for Paddle is slow to import."""
    unset = (emulate.VARIABLE, emulate.TARGET_VARIABLE, "IPU_CONFORMANCE_FAULT", "PADDLE_TRAINER_ID")
    clean = {name: value for name, value in os.environ.items() if name not in unset}
    folder = tmp_path_factory.mktemp("models")
    (folder / "train.py").write_text(textwrap.dedent(TRAIN))
    command = [sys.executable, "-m", "ipu_conformance", "emulate", "-"]
    ended = subprocess.run(
        [*command, str(EXAMPLES), str(folder), *NAMES],
        input=RUN_ALL, env=clean, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    parts = ended.stdout.split("## ")[1:]
    return {part.splitlines()[0]: part.splitlines()[1:] for part in parts}


def test_a_program_for_an_ipu_build_runs_unmodified(printed):
    """A script that compiles and trains for the IPU does so on the stock wheel, and prints nothing else."""
    assert printed["alone"] == ["trained None True ['--epochs', '3']"]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_learns(printed, name):
    """The last loss that a training prints is below half of the first."""
    losses = [float(line.split()[-1]) for line in printed[f"{name} train"] if line.startswith("step")]

    assert len(losses) == 2
    assert losses[1] < losses[0] / 2


@pytest.mark.parametrize(
    ("name", "said"),
    zip(NAMES, ("recognised 6 of 6", "mean squared error below that of zeros: True", "recognised 5 of 5")),
)
def test_what_was_saved_is_asked(printed, name, said):
    """A saved model answers on the device."""
    assert said in printed[f"{name} infer"]


def test_the_legacy_layer_says_so_once(printed):
    """The first import of paddle.fluid is logged, and no other."""
    lines = [line for part in printed.values() for line in part if "paddle.fluid is emulated" in line]

    assert len(lines) == 1
    assert lines[0].startswith("ipu_conformance.paddle: ")
