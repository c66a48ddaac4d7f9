"""What only the workload with an IPUEstimator has: its loops, its folders, its reports and its command."""

import argparse
import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.data.places import DATA_VARIABLE
from ipu_conformance.workloads import WorkloadError, estimator_cnn
from ipu_conformance.workloads.estimator_cnn import Settings
from tests.unit.commands import run, trained
from tests.unit.examples import at_most

needs_estimators = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_estimator") is None, reason="needs a TensorFlow with estimators"
)


@given(st.integers(1, 20), st.integers(1, 40), st.integers(1, 3000), st.integers(1, 700))
@at_most(60)
def test_loops_are_whole(epochs, batch, updates, loop):
    """Training takes the epochs that are asked for, and less than a loop more."""
    chosen = Settings(epochs=epochs, batch_size=batch, train_size=batch * updates, batches_per_step=loop)

    assert 0 <= chosen.loops * loop - epochs * updates < loop
    assert Settings(steps=chosen.loops * loop, batches_per_step=loop).loops == chosen.loops


def test_the_published_run_has_whole_loops():
    """One loop of synthetic pictures; ten epochs of CIFAR-10 are 62.5 loops."""
    real = Settings(data="cifar10", **estimator_cnn.BUDGETS["cifar10"]._asdict())

    assert (Settings().loops, real.loops) == (1, 63)


def options(*words):
    """What a command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--native", action="store_true")
    estimator_cnn.configure(parser)
    return parser.parse_args(words)


def said(*words):
    """The sentence with which the command refuses; nothing is written."""
    before = sorted(Path().rglob("*"))
    with pytest.raises(WorkloadError) as refused:
        estimator_cnn.run(options(*words))
    assert sorted(Path().rglob("*")) == before
    return str(refused.value)


def test_the_command_refuses_before_it_writes(tmp_path, monkeypatch):
    """A test needs a checkpoint, a profile needs IPUs, and there is one way to say how long to train."""
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()

    assert said("--test-only") == ("--test-only needs a trained network; name its folder with --model-dir")
    for folder in ("empty", "nowhere", "file"):
        assert said("--test-only", "--model-dir", folder) == (
            f"--model-dir {folder} holds no checkpoint; train first, or name the folder of a training"
        )
    assert said("--epochs", "2", "--steps", "500") == (
        "--epochs is 2 and --steps is 500; both say how long to train: give one of them"
    )
    assert said("--native", "--profile", "reports") == (
        "--profile is reports, and without IPUs nothing is compiled; leave it out, or use IPUs"
    )
    assert said("--model-dir", "file").startswith("--model-dir file cannot be made (")
    monkeypatch.setenv(estimator_cnn.ENGINE_OPTIONS, "[1]")
    assert said("--profile", "reports") == ("POPLAR_ENGINE_OPTIONS is '[1]', which is not a JSON object; correct it")


def test_a_profile_keeps_the_options_of_the_environment(monkeypatch):
    """Reports are asked for besides what is asked for already."""
    monkeypatch.setenv(estimator_cnn.ENGINE_OPTIONS, '{"autoReport.all": "false", "debug.other": "1"}')
    variables = estimator_cnn.engine_options(Path("here"), native=False)

    assert json.loads(variables[estimator_cnn.ENGINE_OPTIONS]) == {
        "autoReport.all": "true",
        "autoReport.directory": "here",
        "debug.other": "1",
    }
    assert estimator_cnn.engine_options(None, native=True) == {}


def test_runs_without_a_folder_get_a_new_one(tmp_path, monkeypatch):
    """No run goes on from another one by mistake."""
    monkeypatch.chdir(tmp_path)
    first = estimator_cnn.new_folder()
    first.mkdir(parents=True)

    assert first == Path("estimator_cnn/run-1")
    assert estimator_cnn.new_folder() == Path("estimator_cnn/run-2")


SIZES = ["--train-size", "24", "--test-size", "6", "--batch-size", "4", "--batches-per-step", "3", "--no-dropout"]


def command(*words, cwd, start=run):
    """What the command prints."""
    lines, said = trained("train", "estimator-cnn", *words, *SIZES, cwd=cwd, start=start)
    assert "WARNING" not in said
    return lines


@needs_estimators
@pytest.mark.parametrize("framework_name", ["tensorflow"])
def test_a_network_is_trained_tested_and_tested_again(framework_name, tmp_path, after_tensorflow):
    """Both programs leave a report, training first; a later test says the same, and the host can train on."""
    emulated = ["--ipu-target", "emulator"]
    lines = command(*emulated, "--profile", "reports", cwd=tmp_path)

    assert [line.split(",")[0] for line in lines[:2]] == ["Step 3/6", "Step 6/6"]
    assert lines[2] == "Saved checkpoints to estimator_cnn/run-1"
    assert lines[3].startswith("Step 6, loss on test set ")
    assert lines[4].startswith("Accuracy on test set: ")
    assert len(lines) == 5

    reports = sorted((tmp_path / "reports").iterdir())
    assert len(reports) == 2
    assert all(report.name.startswith("tf_report__") for report in reports)
    profiles = [json.loads((report / "profile.json").read_text()) for report in reports]
    assert [profile["program"]["training"] for profile in profiles] == [True, False]
    assert all(profile["memory"]["ipus"][0]["peak"] > 0 for profile in profiles)
    for report in reports:
        assert json.loads((report / "trace.json").read_text())["traceEvents"]
        assert "<svg" in (report / "report.html").read_text()

    stored = ["--model-dir", "estimator_cnn/run-1"]
    assert command(*emulated, "--test-only", *stored, cwd=tmp_path, start=after_tensorflow) == lines[3:]

    native = command("--native", *stored, cwd=tmp_path, start=after_tensorflow)
    assert [line.split(",")[0] for line in native] == [
        "Step 3/6", "Step 6/6", lines[2], "Step 12", native[4],
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "estimator_cnn").iterdir()] == ["run-1"]
