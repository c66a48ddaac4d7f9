"""Report folders: where POPLAR_ENGINE_OPTIONS asks for them, and what they hold."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

ALL = {"autoReport.all": "true"}
Ask = Callable[..., Path]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """Asks for reports by POPLAR_ENGINE_OPTIONS, and gives the folder that they go to."""

    def put(options: Dict[str, Any], directory: bool = True) -> Path:
        where = {"autoReport.directory": str(tmp_path)} if directory else {}
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
    """Run a function that was never compiled before."""

    def function(value: Any) -> Any:
        return value * 2.0

    function.__name__ = name
    compiled = tf.function(function)
    strategy.run(compiled, args=(tf.constant(1.0),))
    return compiled


@pytest.mark.parametrize("value", ["true", "1", True, "TRUE"], ids=repr)
def test_a_compiled_program_leaves_a_report(tf: Any, strategy: Any, ask: Ask, value: Any) -> None:
    """With autoReport.all one folder appears, named by the time and the process."""
    where = ask({"autoReport.all": value})
    run(tf, strategy)
    (folder,) = folders(where)

    assert re.fullmatch(rf"tf_report__\d{{4}}-\d\d-\d\d.*__{os.getpid()}", folder.name)


@pytest.mark.parametrize(
    "options", [{}, {"autoReport.all": "false"}, {"debug.retainDebugInformation": "true"}], ids=str
)
def test_no_report_is_written_unasked(tf: Any, strategy: Any, ask: Ask, options: Dict[str, str]) -> None:
    """Without autoReport options there is no folder."""
    where = ask(options)
    run(tf, strategy)

    assert folders(where) == []


def test_no_variable_means_no_report(tf: Any, strategy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without POPLAR_ENGINE_OPTIONS nothing is written to the current folder."""
    monkeypatch.delenv("POPLAR_ENGINE_OPTIONS", raising=False)
    monkeypatch.chdir(tmp_path)
    run(tf, strategy)

    assert list(tmp_path.iterdir()) == []


def test_reports_go_to_the_current_folder(tf: Any, strategy: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without autoReport.directory reports go to the current folder."""
    where = ask(ALL, directory=False)
    monkeypatch.chdir(where)
    run(tf, strategy)

    assert len(folders(where)) == 1


def test_the_directory_is_made(tf: Any, strategy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that does not exist is made."""
    where = tmp_path / "not" / "yet"
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps({**ALL, "autoReport.directory": str(where)}))
    run(tf, strategy)

    assert len(folders(where)) == 1


def test_a_program_that_is_compiled_once_leaves_one_report(tf: Any, strategy: Any, ask: Ask) -> None:
    """Running a compiled program again writes nothing more; another shape is another program."""
    where = ask(ALL)
    compiled = run(tf, strategy)
    strategy.run(compiled, args=(tf.constant(2.0),))
    once = len(folders(where))
    strategy.run(compiled, args=(tf.constant([1.0, 2.0]),))

    assert [once, len(folders(where))] == [1, 2]


@pytest.mark.emulator
def test_each_program_leaves_a_report_of_its_own(tf: Any, strategy: Any, ask: Ask) -> None:
    """Folders sort as their programs were compiled."""
    where = ask(ALL)
    names = ["zeroth", "first", "second"]
    for name in names:
        run(tf, strategy, name)

    assert [profile["program"]["name"] for profile in profiles(where)] == names


@pytest.mark.emulator
@pytest.mark.parametrize("ipus", [1, 2])
def test_a_model_leaves_a_report_for_each_phase(tf: Any, strategy_on: Any, ask: Ask, ipus: int) -> None:
    """Training and evaluation leave a report each, the older for training; doing it again leaves no more."""
    where = ask(ALL)
    data = tf.data.Dataset.from_tensor_slices((tf.ones([8, 3]), tf.ones([8, 2]))).batch(2, drop_remainder=True)
    with strategy_on(ipus).scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
        model.compile("sgd", "mse", steps_per_execution=2)
        for _ in range(2):
            model.fit(data, verbose=0)
            model.evaluate(data, verbose=0)
    programs = [profile["program"] for profile in profiles(where)]
    memories = [profile["memory"]["ipus"][0] for profile in profiles(where)]

    assert [program["name"] for program in programs] == ["train_function", "test_function"]
    assert [program["training"] for program in programs] == [True, False]
    assert [program["replicas"] for program in programs] == [ipus, ipus]
    assert [memory["weights"] for memory in memories] == [4 * (3 * 2 + 2)] * 2


@pytest.mark.emulator
def test_a_pipeline_is_reported_by_ipu(tf: Any, ipu: Any, strategy_on: Any, ask: Ask) -> None:
    """The report of a pipeline deals memory out to its IPUs, and its trace shows every slot."""
    where = ask(ALL)
    data = tf.data.Dataset.from_tensor_slices((tf.ones([8, 3]), tf.ones([8, 2]))).batch(2, drop_remainder=True)
    with strategy_on(2).scope():
        inputs = tf.keras.Input((3,))
        with tf.keras.ipu.PipelineStage(0):
            values = tf.keras.layers.Dense(5)(inputs)
        with tf.keras.ipu.PipelineStage(1):
            values = tf.keras.layers.Dense(2)(values)
        model = tf.keras.Model(inputs, values)
        model.compile("sgd", "mse", steps_per_execution=4)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
        model.fit(data, verbose=0)
    (profile,) = profiles(where)

    assert [memory["weights"] for memory in profile["memory"]["ipus"]] == [4 * (3 * 5 + 5), 4 * (5 * 2 + 2)]
    assert profile["program"]["slots"] == {"forward": 8, "recompute": 0, "backward": 8, "reduce": 0, "update": 2}
    assert [sum(event["tid"] == stage for event in slots(where)) for stage in (0, 1)] == [9, 9]


@pytest.mark.parametrize("text", ["{", "[]", '"text"', '{"autoReport.all": "perhaps"}'])
def test_options_that_are_no_options_are_refused(
    tf: Any, strategy: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """POPLAR_ENGINE_OPTIONS is a JSON object, and a switch of it is true or false."""
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", text)

    with pytest.raises(Exception, match=r"(?i)option"):
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
@pytest.mark.parametrize("ipus", [1, 2])
def test_the_profile_tells_of_the_program(tf: Any, strategy_on: Any, ask: Ask, ipus: int) -> None:
    """profile.json says what was compiled: its name, its replicas, the device and the configuration in force."""
    where = ask(ALL)
    run(tf, strategy_on(ipus, allow_recompute=True), "double_all")
    (profile,) = profiles(where)

    assert profile["program"]["name"] == "double_all"
    assert profile["program"]["replicas"] == ipus
    assert profile["program"]["slots"]["forward"] == 1
    assert profile["device"]["tiles"] == 1472
    assert profile["devices"] == [ipus]
    assert profile["configuration"]["allow_recompute"] is True
    assert profile["process"] == os.getpid()


@pytest.mark.emulator
@pytest.mark.parametrize("ipus", [1, 2])
def test_the_profile_tells_of_memory_and_time(tf: Any, strategy_on: Any, ask: Ask, ipus: int) -> None:
    """profile.json holds the memory of each IPU and the products of one replica, read from the program itself."""
    where = ask(ALL)
    strategy = strategy_on(ipus)
    with strategy.scope():
        weight = tf.Variable(tf.ones([32, 16]), name="weight")
    strategy.run(tf.function(lambda value: tf.matmul(value, weight)), args=(tf.ones([8, 32]),))
    (profile,) = profiles(where)
    (memory,) = profile["memory"]["ipus"]

    assert profile["cost"]["macs"] == 8 * 32 * 16
    assert memory["weights"] == 4 * 32 * 16
    assert memory["peak"] <= profile["memory"]["capacity"] == 1472 * 624 * 1024
    assert memory["largest"][0]["name"] == "weight:0"


@pytest.mark.emulator
def test_the_trace_opens_in_perfetto(tf: Any, strategy_on: Any, ask: Ask) -> None:
    """trace.json holds an event for every slot of every replica, in the Trace Event Format."""
    where = ask(ALL)
    run(tf, strategy_on(2))

    assert {event["pid"] for event in slots(where)} == {0, 1}
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in slots(where))


@pytest.mark.emulator
def test_the_page_stands_alone(tf: Any, strategy: Any, ask: Ask) -> None:
    """report.html shows the program and a timeline, and fetches nothing."""
    where = ask(ALL)
    run(tf, strategy, "a<b")
    page = Page()
    page.feed((folders(where)[0] / "report.html").read_text())

    assert "a<b" in page.text
    assert "Timeline" in page.text
    assert page.shapes >= 1
    assert page.fetched == []


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
    """A part that is named counts more than autoReport.all."""
    where = ask(options)
    run(tf, strategy)

    assert {file.name for file in folders(where)[0].iterdir()} == files
