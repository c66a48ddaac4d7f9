"""Report folders of estimators: one for each call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, List

import pytest

from ipu_conformance import check, frameworks

from .pipelines import Chain, Programs
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")

each_replicas = pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.ipus(2))])


def run(estimators: Estimators, replicas: int, reports: Callable[[], Any] = list) -> List[Any]:
    """What there is of reports after a training, an evaluation and another training."""
    estimator = estimators.make(replicas=replicas)
    seen = []
    for call, steps in ((estimator.train, 4), (estimator.evaluate, 2), (estimator.train, 2)):
        call(estimators.feed(steps * replicas), steps=steps)
        seen.append(reports())
    return seen


@pytest.fixture
def reported(shared: Estimators, reports: Callable[[], List[Path]]) -> Callable[[int], List[List[Path]]]:
    """The folders after each call on so many replicas; the calls are made once."""
    return lambda replicas: shared.once(("reports", replicas), lambda: run(shared, replicas, reports))


@each_replicas
def test_training_and_evaluation_leave_a_report_each(reported: Any, replicas: int) -> None:
    """Each call builds its own program and leaves a report of it; the older ones stay."""
    folders = reported(replicas)

    numbers = [len(each) for each in folders]
    check.equal(actual=numbers, expected=[1, 2, 3], what="the number of reports after each of three calls")
    check.equal(actual=[folders[1][:1], folders[2][:2]], expected=folders[:2], what="the older reports")


@pytest.mark.emulator
@each_replicas
def test_the_older_report_is_that_of_training(reported: Any, replicas: int) -> None:
    """The profiles say which program trains, and on how many replicas."""
    programs = [json.loads((folder / "profile.json").read_text())["program"] for folder in reported(replicas)[-1]]

    actual = [(program["training"], program["replicas"]) for program in programs]
    expected = [(training, replicas) for training in (True, False, True)]
    check.equal(actual=actual, expected=expected, what="whether each program trains, and its replicas")


@pytest.mark.emulator
def test_the_program_of_an_estimator_is_shown(shared: Estimators) -> None:
    """After a training and after an evaluation the target shows the graph of the loop that has run last."""
    estimator, outputs = shared.make(), []
    for call in (estimator.train, estimator.evaluate):
        call(shared.feed(4), steps=4)
        program = frameworks.ir("tensorflow", estimator)
        check.holds(program is not None, f"the target shows no program of the estimator after {call.__name__}.")
        outputs.append(len(program().ops))

    check.holds(outputs[0] > outputs[1] > 0, f"training has {outputs[0]} operations, and evaluation {outputs[1]}.")


@pytest.mark.emulator
def test_reports_open(reported: Any) -> None:
    """Each folder has a profile with the memory of the IPU, a trace and a page."""
    for folder in reported(1)[-1]:
        files = sorted(file.name for file in folder.iterdir())
        check.equal(actual=files, expected=["profile.json", "report.html", "trace.json"], what="the files of a report")
        held = json.loads((folder / "profile.json").read_text())["memory"]["ipus"][0]["weights"]
        check.holds(held >= 4, f"The profile says that weights take {held} bytes of the IPU, where one takes 4.")
        phases = [event["ph"] for event in json.loads((folder / "trace.json").read_text())["traceEvents"]]
        check.contains(actual=phases, expected="X", what="the phases of the trace's events")
        check.contains(actual=(folder / "report.html").read_text(), expected="Timeline", what="the page")


@pytest.mark.emulator
@pytest.mark.ipus(6)
def test_a_pipeline_is_reported_by_ipu(programs: Programs, reports: Callable[[], List[Path]]) -> None:
    """Each stage is on its IPU with its weight; a loop has every micro-batch, and in training every update."""
    chain = Chain(2, 4, device_iterations=5, replicas=3, devices=(1, 0), momentum=0.5)
    estimator, stages = programs.estimator(chain), chain.number_of_stages
    estimator.train(programs.fed(chain), steps=chain.iterations)
    estimator.evaluate(programs.fed(chain), steps=chain.iterations)
    trained, evaluated = (json.loads((folder / "profile.json").read_text()) for folder in reports())

    every, updates = stages * chain.iterations, stages * chain.device_iterations  # of one replica
    slots = {"forward": every, "recompute": 0, "backward": every, "reduce": updates, "update": updates}
    for profile, training in ((trained, True), (evaluated, False)):
        program, what = profile["program"], "training" if training else "evaluation"
        found = (program["training"], program["replicas"], program["micro_batches"], program["updates"])
        counts = (chain.replicas, chain.gradient_accumulation, chain.device_iterations if training else 0)
        what_is_told = f"the replicas, the micro-batches of a run and the updates of the {what}"
        check.equal(actual=found, expected=(training, *counts), what=what_is_told)
        check.equal(actual=program["placement"], expected=list(chain.devices), what="the IPU of each stage")
        want = slots if training else {kind: every if kind == "forward" else 0 for kind in slots}
        check.equal(actual=program["slots"], expected=want, what=f"the slots of the {what}")
        for part in ("weights", "optimizer_state"):  # momentum keeps one number for each weight
            held = [memory[part] for memory in profile["memory"]["ipus"]][:stages]
            number = 4 if training or part == "weights" else 0
            check.equal(actual=held, expected=[number] * stages, what=f"the bytes of {part} in the {what}, by IPU")


@pytest.mark.emulator
def test_the_report_knows_the_options(estimators: Estimators, reports: Callable[[], List[Path]]) -> None:
    """The configuration in a report is that of ipu_options."""
    options = estimators.options(1)
    options.allow_recompute = True
    estimators.make(run={"ipu_options": options}).train(estimators.feed(2), steps=2)
    (folder,) = reports()

    recompute = json.loads((folder / "profile.json").read_text())["configuration"]["allow_recompute"]
    check.equal(actual=recompute, expected=True, what="allow_recompute in the profile")


def test_no_report_is_written_unasked(estimators: Estimators, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without POPLAR_ENGINE_OPTIONS nothing is written outside the model's folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)
    monkeypatch.chdir(tmp_path / "here")
    run(estimators, 1)

    check.equal(actual=list((tmp_path / "here").iterdir()), expected=[], what="what was written to the current folder")
