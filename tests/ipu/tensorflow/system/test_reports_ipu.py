"""Report folders: where POPLAR_ENGINE_OPTIONS asks for them, and what they hold."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest

from ipu_conformance import check

ALL = {"autoReport.all": "true"}
Ask = Callable[..., Path]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """Asks for reports in POPLAR_ENGINE_OPTIONS, and returns the folder that they go to."""

    def put(options: Dict[str, Any], directory: str = ".") -> Path:
        where = {"autoReport.directory": str(tmp_path / directory)} if directory else {}
        monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({**options, **where}))
        return tmp_path

    return put


def folders(directory: Path) -> List[Path]:
    """The report folders, the oldest first."""
    return sorted(directory.glob("tf_report__*"))


def profiles(directory: Path) -> List[Dict[str, Any]]:
    """The profiles of all reports, the oldest first."""
    return [json.loads((folder / "profile.json").read_text()) for folder in folders(directory)]


def slots(directory: Path) -> List[Dict[str, Any]]:
    """The slots in the trace of the only report."""
    (folder,) = folders(directory)
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


def run(tf: Any, strategy: Any, name: str = "double") -> Any:
    """Run a new function, which is compiled first."""
    function = lambda value: value * 2.0  # noqa: E731
    function.__name__ = name
    compiled = tf.function(function)
    strategy.run(compiled, args=(tf.constant(1.0),))
    return compiled


@pytest.mark.parametrize("value", ["true", "1", True, "TRUE"], ids=repr)
def test_a_compiled_program_leaves_a_report(tf: Any, strategy: Any, ask: Ask, value: Any) -> None:
    """With autoReport.all one folder appears, with the time and the process in its name."""
    where = ask({"autoReport.all": value})
    run(tf, strategy)
    (folder,) = folders(where)

    named = re.fullmatch(rf"tf_report__\d{{4}}-\d\d-\d\d.*__{os.getpid()}", folder.name)
    check.holds(named, f"the folder {folder.name} is not named by the time and the process {os.getpid()}.")


@pytest.mark.parametrize(
    "options", [None, {}, {"autoReport.all": "false"}, {"debug.retainDebugInformation": "true"}], ids=str
)
def test_no_report_is_written_unasked(
    tf: Any, strategy: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch, options: Optional[Dict[str, str]]
) -> None:
    """Without autoReport options, or without POPLAR_ENGINE_OPTIONS, nothing is written, not to the current folder."""
    where = ask(options or {})
    monkeypatch.chdir(where)
    if options is None:
        monkeypatch.delenv("POPLAR_ENGINE_OPTIONS")
    run(tf, strategy)

    check.equal(actual=list(where.iterdir()), expected=[], what=f"what is written with {options}")


def test_reports_go_to_the_current_folder(tf: Any, strategy: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without autoReport.directory reports go to the current folder."""
    where = ask(ALL, "")
    monkeypatch.chdir(where)
    run(tf, strategy)

    check.equal(actual=len(folders(where)), expected=1, what="the number of reports in the current folder")


def test_the_directory_is_made(tf: Any, strategy: Any, ask: Ask) -> None:
    """A directory that does not exist is created."""
    where = ask(ALL, "not/yet")
    run(tf, strategy)

    check.equal(actual=len(folders(where / "not/yet")), expected=1, what="the number of reports in the new directory")


def test_a_program_that_is_compiled_once_leaves_one_report(tf: Any, strategy: Any, ask: Ask) -> None:
    """Running a compiled program again writes nothing more; another shape is another program."""
    where = ask(ALL)
    compiled, numbers = run(tf, strategy), []
    for value in (2.0, [1.0, 2.0]):
        strategy.run(compiled, args=(tf.constant(value),))
        numbers.append(len(folders(where)))

    check.equal(actual=numbers, expected=[1, 2], what="the number of reports after another value and another shape")


@pytest.mark.emulator
def test_each_program_leaves_a_report_of_its_own(tf: Any, strategy: Any, ask: Ask) -> None:
    """Report folders sort in the order in which their programs were compiled."""
    where = ask(ALL)
    names = ["zeroth", "first", "second"]
    for name in names:
        run(tf, strategy, name)

    programs = [profile["program"]["name"] for profile in profiles(where)]
    check.equal(actual=programs, expected=names, what="the programs of the reports, oldest first")


def batches(tf: Any, rows: int) -> Any:
    """Batches of two rows of three features and two labels."""
    return tf.data.Dataset.from_tensor_slices((tf.ones([rows, 3]), tf.ones([rows, 2]))).batch(2, drop_remainder=True)


@pytest.mark.emulator
def test_a_model_leaves_a_report_for_each_phase(tf: Any, strategy_on: Any, ask: Ask) -> None:
    """Training and evaluation leave a report each, the older for training; doing it again leaves no more."""
    where, data = ask(ALL), batches(tf, 16)
    with strategy_on(4).scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
        model.compile("sgd", "mse", steps_per_execution=2)
        for _ in range(2):
            model.fit(data, verbose=0)
            model.evaluate(data, verbose=0)

    for phase, (name, profile) in enumerate(zip(["train_function", "test_function"], profiles(where))):
        program = {key: profile["program"].get(key) for key in ("name", "training", "replicas")}
        expected = {"name": name, "training": phase == 0, "replicas": 4}
        check.equal(actual=program, expected=expected, what=f"the program of report {phase}")
        weights = profile["memory"]["ipus"][0]["weights"]
        check.equal(actual=weights, expected=4 * (3 * 2 + 2), what=f"the bytes of weights in report {phase}")
    check.equal(actual=len(folders(where)), expected=2, what="the number of reports")


@pytest.mark.emulator
@pytest.mark.parametrize("recompute", [True, False], ids=["recomputed", "kept"])
def test_a_pipeline_is_reported_by_ipu(tf: Any, ipu: Any, strategy_on: Any, ask: Ask, recompute: bool) -> None:
    """The report of a pipeline has the memory of each IPU, and its trace has every slot."""
    where, widths, count = ask(ALL), (5, 4, 2), 6
    with strategy_on(4, allow_recompute=recompute).scope():
        values = inputs = tf.keras.Input((3,))
        for stage, width in enumerate(widths):
            with tf.keras.ipu.PipelineStage(stage):
                values = tf.keras.layers.Dense(width)(values)
        model = tf.keras.Model(inputs, values)
        model.compile(tf.keras.optimizers.SGD(momentum=0.5), "mse", steps_per_execution=count)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=count)
        model.fit(batches(tf, 2 * count), verbose=0)
    (profile,) = profiles(where)

    sizes = [4 * (rows + 1) * columns for rows, columns in zip((3, *widths), widths)]
    for part in ("weights", "gradients", "optimizer_state"):  # momentum keeps one number for each weight
        held = [memory[part] for memory in profile["memory"].get("ipus", [])][: len(widths)]
        check.equal(actual=held, expected=sizes, what=f"the bytes of {part}, by IPU")
    counts = (profile["program"]["micro_batches"], profile["program"]["updates"])
    check.equal(actual=counts, expected=(count, 1), what="the micro-batches and the updates of a run")
    again = 2 * count if recompute else 0
    expected = {"forward": 3 * count, "recompute": again, "backward": 3 * count, "reduce": 0, "update": 3}
    check.equal(actual=profile["program"]["slots"], expected=expected, what="the slots")
    events = [sum(event["tid"] == stage for event in slots(where)) for stage in range(len(widths))]
    per_stage = [2 * count + 1 + again // 2] * 2 + [2 * count + 1]
    check.equal(actual=events, expected=per_stage, what="the slots in the trace, by stage")


@pytest.mark.emulator
def test_a_schedule_decides_what_is_stashed(tf: Any, ipu: Any, strategy_on: Any, ask: Ask) -> None:
    """The first of two stages stashes one micro-batch when they are run one by one, and more when they overlap."""
    where, stashed = ask(ALL), {}
    for schedule in ("Sequential", "Grouped"):
        with strategy_on(2).scope():
            values = inputs = tf.keras.Input((3,))
            for stage in range(2):
                with tf.keras.ipu.PipelineStage(stage):
                    values = tf.keras.layers.Dense(2, activation="relu")(values)
            model = tf.keras.Model(inputs, values)
            model.compile("sgd", "mse", steps_per_execution=8)
            member = getattr(ipu.pipelining_ops.PipelineSchedule, schedule)
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=8, pipeline_schedule=member)
            model.fit(batches(tf, 16), verbose=0)
        stashed[schedule] = profiles(where)[-1]["memory"]["ipus"][0]["stash"]

    alone, overlapping = stashed["Sequential"], stashed["Grouped"]
    check.holds(
        0 < alone < overlapping, f"stashes take {alone} bytes one by one, and {overlapping} where stages overlap."
    )


@pytest.mark.parametrize("text", ["{", "[]", '"text"', '{"autoReport.all": "perhaps"}'])
def test_options_that_are_no_options_are_refused(
    tf: Any, strategy: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """POPLAR_ENGINE_OPTIONS is a JSON object, and a switch of it is true or false."""
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)

    with check.raises(Exception, match=r"(?i)option", what=f"POPLAR_ENGINE_OPTIONS={text}"):
        run(tf, strategy)


class Page(HTMLParser):
    """Collects what a page shows and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.text: List[str] = []
        self.fetched: List[str] = []
        self.shapes = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.shapes += tag == "rect"
        self.fetched += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.emulator
@pytest.mark.parametrize("ipus", [1, 4])
def test_the_profile_tells_of_the_program(tf: Any, strategy_on: Any, ask: Ask, ipus: int) -> None:
    """profile.json holds the program, the device and the configuration in force; trace.json a slot for each replica."""
    where = ask(ALL)
    run(tf, strategy_on(ipus, allow_recompute=True), "double_all")
    (profile,) = profiles(where)
    program, configuration = profile["program"], profile["configuration"]

    values = (program["name"], program["replicas"], program["slots"]["forward"])
    check.equal(actual=values, expected=("double_all", ipus, 1), what="the program's name, replicas and forward slots")
    system = (profile["device"]["tiles"], profile["devices"], profile["process"], configuration["allow_recompute"])
    what = "the tiles of an IPU, the IPUs of devices, the process and allow_recompute"
    check.equal(actual=system, expected=(1472, [ipus], os.getpid(), True), what=what)
    replicas = sorted(event["pid"] for event in slots(where))
    check.equal(actual=replicas, expected=list(range(ipus)), what="the replicas of the trace's slots")
    for event in slots(where):
        check.holds(event["dur"] > 0 and event["ts"] >= 0, f"the slot {event} begins before 0 or takes no time.")


@pytest.mark.emulator
@pytest.mark.parametrize("ipus", [1, 4])
def test_the_profile_tells_of_memory_and_time(tf: Any, strategy_on: Any, ask: Ask, ipus: int) -> None:
    """profile.json holds the memory of each IPU and one replica's multiplications, both read from the program."""
    where, strategy = ask(ALL), strategy_on(ipus)
    with strategy.scope():
        weight = tf.Variable(tf.ones([32, 16]), name="weight")
    strategy.run(tf.function(lambda value: tf.matmul(value, weight)), args=(tf.ones([8, 32]),))
    (profile,) = profiles(where)
    (memory,) = profile["memory"]["ipus"]

    capacity, peak = profile["memory"]["capacity"], memory["peak"]
    values = (profile["cost"]["macs"], memory["weights"], capacity, memory["largest"][0]["name"])
    expected = (8 * 32 * 16, 4 * 32 * 16, 1472 * 624 * 1024, "weight:0")
    check.equal(actual=values, expected=expected, what="the macs, bytes of weights, capacity and largest tensor")
    check.holds(2048 <= peak <= capacity, f"the peak is {peak} bytes, with weights of 2048 and room for {capacity}.")


@pytest.mark.emulator
def test_the_page_stands_alone(tf: Any, strategy: Any, ask: Ask) -> None:
    """report.html shows the program and a timeline, and fetches nothing."""
    where, page = ask(ALL), Page()
    run(tf, strategy, "a<b")
    page.feed((folders(where)[0] / "report.html").read_text())

    for word in ("a<b", "Timeline"):
        check.contains(actual=page.text, expected=word, what="the text of the page")
    check.equal(actual=page.fetched, expected=[], what="what the page fetches")
    check.holds(page.shapes, "the timeline of the page has no rectangles.")


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("options", "files"),
    [
        (ALL, {"profile.json", "report.html", "trace.json"}),
        ({"autoReport.outputGraphProfile": "true"}, {"profile.json", "report.html"}),
        ({"autoReport.outputExecutionProfile": "true"}, {"profile.json", "report.html", "trace.json"}),
        ({**ALL, "autoReport.outputExecutionProfile": "false"}, {"profile.json", "report.html"}),
    ],
    ids=["all", "graph", "execution", "no-execution"],
)
def test_parts_of_a_report_can_be_asked_for(
    tf: Any, strategy: Any, ask: Ask, options: Dict[str, str], files: Any
) -> None:
    """A part that is named overrides autoReport.all."""
    where = ask(options)
    run(tf, strategy)

    written = {file.name for file in folders(where)[0].iterdir()}
    check.equal(actual=written, expected=files, what="the files of the report")
