"""The Paddle digits workload's references and commands."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ipu_conformance import cli
from ipu_conformance.data import load
from ipu_conformance.data.places import DATA_VARIABLE
from ipu_conformance.oracle.convergence import baseline as baselines
from ipu_conformance.oracle.convergence.recording import find
from ipu_conformance.workloads.paddle_mnist.batches import SIDE
from ipu_conformance.workloads.paddle_mnist.reference import ACCURACY, LOSS, judgements

from .pictures import write_picture

needs_paddle = pytest.mark.skipif(importlib.util.find_spec("paddle") is None, reason="needs paddle")


@pytest.mark.parametrize("reference", [ACCURACY, LOSS], ids=lambda reference: reference.name)
def test_a_baseline_was_recorded_with_the_settings_of_its_reference(reference):
    """The shipped baseline is of the reference that is in the code, and says how to record it again."""
    baseline = baselines.load(Path(reference.name))
    place = next(word for word in baseline.regenerate.split() if ":" in word)

    assert dict(baseline.budget) == reference.budget
    assert (baseline.workload, baseline.metric) == (reference.name, reference.metric)
    assert find(place) is reference


def run_like(reference, *, shift=0.0):
    """A run whose passes have the means of a baseline, higher by ``shift``."""
    from ipu_conformance.workloads.paddle_mnist.training import Result, Validation

    means = [row.mean + shift for row in baselines.load(Path(reference.name)).band().epochs]
    passes = tuple(Validation(number, 1.0, mean) for number, mean in enumerate(means, start=1))
    costs = tuple(mean + wave for mean in means for wave in (-0.25, 0.25))
    return Result(costs, passes, passes, means[-1], {})


@needs_paddle
@pytest.mark.parametrize("reference", [ACCURACY, LOSS], ids=lambda reference: reference.name)
def test_a_run_is_judged_by_the_baseline_of_its_settings(reference):
    """A run like the mean of the baseline passes, for any seed; one that is too low or too high does not."""
    chosen = replace(reference.settings, seed=99)
    shift = max(row.high - row.mean for row in baselines.load(Path(reference.name)).band().epochs) * 1.001

    for moved, passed in ((0.0, True), (shift, False), (-shift, False)):
        verdicts = judgements(chosen, run_like(reference, shift=moved))
        assert [verdict.passed for verdict in verdicts] == [passed]
    assert judgements(replace(chosen, num_ipus=2), run_like(reference)) == []


@needs_paddle
@pytest.mark.parametrize(("shift", "code"), [(-0.5, 1), (0.0, 0)], ids=["outside", "inside"])
def test_the_command_fails_where_a_run_leaves_its_baseline(monkeypatch, capsys, tmp_path, shift, code):
    """The exit code says whether the run was inside the band; the last line of the output is the accuracy."""
    from ipu_conformance.workloads.paddle_mnist import training

    made = run_like(ACCURACY, shift=shift)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setattr(training, "train", lambda *args, **kwargs: made)

    assert cli.main(["train", "paddle-mnist", "--native", "--folder", str(tmp_path)]) == code
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == f"Accuracy on test set: {100 * made.accuracy:.2f}%"
    assert ("test accuracy is too low at epoch 1" in shown.err) == bool(code)


def command(*words, module="ipu_conformance", cwd=None):
    """What a command prints, and its exit code."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop(DATA_VARIABLE, None)
    line = [sys.executable, "-m", module, *words]
    return subprocess.run(
        line, capture_output=True, text=True, check=False, timeout=200, cwd=cwd, env=environment
    )  # fmt: skip


SIZES = ["--epochs", "1", "--train-size", "48", "--test-size", "9", "--batch-size", "16"]
SIDES = {
    "native": ["--use_ipu", "False"],
    "one IPU": ["--use_ipu", "True", "--num_ipus", "1", "--no_pipelining", "--ipu-target", "emulator"],
    "replicated pipeline": ["--num_ipus", "4", "--replication-factor", "2", "--ipu-target", "emulator"],
}


@needs_paddle
@pytest.mark.parametrize("side", SIDES)
def test_the_commands_train_and_recognise(side, tmp_path):
    """A run ends with the best pass, its files and the accuracy; a picture's digit is the last line of inference."""
    module = "ipu_conformance.workloads.paddle_mnist"
    made = command(*SIDES[side], *SIZES, module=f"{module}.train", cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    lines = made.stdout.splitlines()
    assert lines[0].startswith("Epoch 1, batch 3, Cost ")
    assert " Validation Cost " in lines[0]
    assert lines[-4].startswith("Best pass is 1, validation cost is ")
    assert lines[-3] == "Saved the inference model to paddle_mnist/model"
    assert lines[-2] == "Drew the loss curve to paddle_mnist/loss.png"
    assert lines[-1].startswith("Accuracy on test set: ")
    image = write_picture(tmp_path / "digit.png", load("synthetic-digits", train=0, test=1).test.images[0, :, :, 0])
    words = ["--use_ipu", "False"] if side == "native" else ["--ipu-target", "emulator"]
    found = command("--img", str(image), *words, module=f"{module}.infer", cwd=tmp_path)

    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[0] == "Drew the IR graph to paddle_mnist/ir_graph.dot"
    assert found.stdout.splitlines()[-1].startswith("Recognised digit: ")
    assert {path.name for path in (tmp_path / "paddle_mnist").iterdir()} >= {"model", "loss.png", "ir_graph.dot"}


def bad_input(folder):
    """Command lines that are refused, with the beginnings of their sentences."""
    picture_of_nothing = write_picture(folder / "dark.png", np.zeros((SIDE, SIDE), np.uint8))
    nowhere = str(folder / "nowhere")
    train, infer = ["train", "paddle-mnist", "--folder", nowhere], ["infer", "paddle-mnist", "--folder", nowhere]
    return [
        ([*train, "--native", "--epochs", "0"], "--epochs is 0; give 1 or more"),
        ([*train, "--num_ipus", "4", "--replication-factor", "3"], "--replication-factor is 3, which does not divide"),
        ([*train, "--use_ipu", "False", "--num_ipus", "2"], "--num_ipus is 2, and without IPUs"),
        ([*train, "--report-every", "0"], "--report-every is 0; give 1 or more"),
        ([*train, "--ipu-target", "hardware"], "paddle-mnist cannot run on target 'hardware': "),
        ([*infer, "--img", str(folder / "none.png")], f"--img {folder}/none.png does not exist"),
        ([*infer, "--img", str(picture_of_nothing)], f"{nowhere}/model has no recognise_digits.pdmodel"),
    ]


def test_bad_input_is_one_sentence_and_imports_no_framework(tmp_path):
    """The exit code is 2, nothing is written, and Paddle is not imported before the input is known to be good."""
    text = """
        import contextlib, io, json, sys
        from ipu_conformance import cli
        for words in json.loads(sys.argv[1]):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                code = cli.main(words)
            print(json.dumps([code, said.getvalue(), "paddle" in sys.modules]))
    """
    cases = bad_input(tmp_path)
    program = [sys.executable, "-c", textwrap.dedent(text), json.dumps([words for words, _ in cases])]
    environment = {key: value for key, value in os.environ.items() if key != DATA_VARIABLE}
    made = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    answers = [json.loads(line) for line in made.stdout.splitlines()]

    assert len(answers) == len(cases)
    for (words, sentence), (code, said, imported) in zip(cases, answers):
        assert (code, imported) == (2, False), words
        assert said.startswith(f"ipu-conformance: error: {sentence}")
        assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["dark.png"]


@needs_paddle
def test_the_native_twin_touches_no_ipu_api_and_no_emulator(tmp_path):
    """A native run imports neither the emulator nor the module that speaks to IPUs."""
    text = """
        import sys
        from pathlib import Path
        from ipu_conformance.workloads.paddle_mnist import Settings, inference, reference, training
        training.train(Settings(epochs=1, train_size=4, test_size=3, batch_size=2), native=True)
        print([name for name in sys.modules if "emulator" in name or name.endswith("paddle_mnist.ipu")])
    """
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert made.stdout == "[]\n"
