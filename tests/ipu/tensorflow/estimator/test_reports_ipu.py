"""Report folders of an IPUEstimator: one for training, one for evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")


def profiles(folders: List[Path]) -> List[Dict[str, Any]]:
    """What the reports tell of their programs."""
    return [json.loads((folder / "profile.json").read_text()) for folder in folders]


def both(estimators: Estimators, replicas: int = 1) -> Any:
    """An estimator that has trained and evaluated."""
    estimator = estimators.make(replicas=replicas)
    estimator.train(estimators.feed(4 * replicas), steps=4)
    estimator.evaluate(estimators.feed(2 * replicas), steps=2)
    return estimator


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.ipus(2))])
def test_training_and_evaluation_leave_a_report_each(
    estimators: Estimators, reports: Callable[[], List[Path]], replicas: int
) -> None:
    """Two programs are compiled, and there are two folders."""
    estimator = estimators.make(replicas=replicas)
    estimator.train(estimators.feed(4 * replicas), steps=4)
    first = reports()
    estimator.evaluate(estimators.feed(2 * replicas), steps=2)

    assert len(first) == 1
    assert reports()[0] == first[0]
    assert len(reports()) == 2


@pytest.mark.emulator
@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.ipus(2))])
def test_the_older_report_is_that_of_training(
    estimators: Estimators, reports: Callable[[], List[Path]], replicas: int
) -> None:
    """The profiles say which program trains, and on how many replicas."""
    both(estimators, replicas)
    programs = [profile["program"] for profile in profiles(reports())]

    assert [program["training"] for program in programs] == [True, False]
    assert [program["replicas"] for program in programs] == [replicas] * 2


@pytest.mark.emulator
def test_reports_open(estimators: Estimators, reports: Callable[[], List[Path]]) -> None:
    """Each folder has a profile with the memory of the IPU, a trace and a page."""
    both(estimators)

    for folder, profile in zip(reports(), profiles(reports())):
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        assert {file.name for file in folder.iterdir()} == {"profile.json", "trace.json", "report.html"}
        assert profile["memory"]["ipus"][0]["weights"] >= 4
        assert [event for event in events if event["ph"] == "X"]
        assert "Timeline" in (folder / "report.html").read_text()


@pytest.mark.emulator
def test_the_report_knows_the_options(estimators: Estimators, reports: Callable[[], List[Path]]) -> None:
    """The configuration in a report is that of ipu_options."""
    options = estimators.options(1)
    options.allow_recompute = True
    estimators.make(run={"ipu_options": options}).train(estimators.feed(2), steps=2)
    (profile,) = profiles(reports())

    assert profile["configuration"]["allow_recompute"] is True


def test_prediction_leaves_a_report(estimators: Estimators, reports: Callable[[], List[Path]]) -> None:
    """A program that predicts is reported, too."""
    list(estimators.make().predict(estimators.feed(2), num_predictions=2))

    assert len(reports()) == 1


def test_every_call_compiles(estimators: Estimators, reports: Callable[[], List[Path]]) -> None:
    """Each call builds its own program, and leaves a report of it."""
    estimator = both(estimators)
    estimator.train(estimators.feed(2), steps=2)

    assert len(reports()) == 3


def test_no_report_is_written_unasked(estimators: Estimators, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without POPLAR_ENGINE_OPTIONS nothing is written outside of the model's folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)
    monkeypatch.chdir(tmp_path / "here")
    both(estimators)

    assert list((tmp_path / "here").iterdir()) == []
