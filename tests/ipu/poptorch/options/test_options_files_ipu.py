"""Options from JSON, from files and from the environment."""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from ipu_conformance import check

from .options_table import IN_JSON, OPTIONS, READ_BACK, Row, assert_reads, evaluate, reach

READ_BACK_IN_JSON = tuple(row for row in READ_BACK if row.json is not None)
IN_FILES = tuple(row for row in OPTIONS if "Strategy" not in row.method)


@pytest.fixture(autouse=True)
def _no_default_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the cases does not count."""
    monkeypatch.delenv("POPTORCH_DEFAULT_OPTIONS", raising=False)


@pytest.mark.parametrize("row", IN_JSON, ids=str)
def test_json_calls_the_method_that_it_names(poptorch: Any, row: Row) -> None:
    """A key names a method, and the value is its argument: the options equal those set by hand."""
    by_hand = poptorch.Options()
    reach(by_hand, row.method)(evaluate(row.allowed))
    from_json = poptorch.Options()
    from_json.from_json(f'{{"{row.method}": {row.json}}}')

    check.equal(actual=from_json.toDict(), expected=by_hand.toDict(), what=f"toDict() with {row.method} from JSON")
    if row.reads is not None:
        assert_reads(from_json, **{row.reads: reach(by_hand, row.reads)})


def test_json_sets_several_options(poptorch: Any) -> None:
    """Every pair of a JSON object is applied, and what is read back from other options can be written as JSON."""
    iterations = poptorch.Options().deviceIterations(3).device_iterations
    counts = {"deviceIterations": iterations, "replicationFactor": 2, "Training.gradientAccumulation": 5}
    options = poptorch.Options()
    options.from_json(json.dumps(counts))

    assert_reads(options, device_iterations=3, replication_factor=2, Training__gradient_accumulation=5)


def test_json_of_a_wrong_type_is_refused(poptorch: Any) -> None:
    """A value in JSON is checked like one set by hand."""
    with check.raises(AssertionError, what="deviceIterations as a text in JSON"):
        poptorch.Options().from_json('{"deviceIterations": "three"}')


@pytest.mark.parametrize(
    "text", ['{"deviceIteration": 3}', '{"Train.gradientAccumulation": 3}', '{"deviceIterations": 3', "[1, 2]"],
    ids=["method", "sub-set", "broken", "list"],
)  # fmt: skip
def test_json_that_cannot_be_applied_is_an_error(poptorch: Any, text: str) -> None:
    """A method that does not exist, or text that is not a JSON object, is an error, and nothing is set."""
    options = poptorch.Options()
    before = options.toDict()
    with check.raises(Exception, what=f"from_json({text!r})"):  # which class it is, no document says
        options.from_json(text)

    check.equal(actual=options.toDict(), expected=before, what="toDict() after JSON that cannot be applied")


@pytest.mark.parametrize("row", IN_FILES, ids=str)
def test_a_line_of_a_file_sets_an_option(poptorch: Any, row: Row, tmp_path: Path) -> None:
    """A file holds calls as they would be written behind the options."""
    by_hand = poptorch.Options()
    reach(by_hand, row.method)(evaluate(row.allowed))
    path = tmp_path / "options.conf"
    path.write_text(f"{row.method}({row.allowed})\n", encoding="utf-8")
    loaded = poptorch.Options()

    check.holds(loaded.loadFromFile(str(path)) is loaded, "loadFromFile does not return the options.")
    check.equal(actual=loaded.toDict(), expected=by_hand.toDict(), what=f"toDict() with {row.method} from a file")


def test_a_file_may_hold_comments_and_blank_lines(poptorch: Any, tmp_path: Path) -> None:
    """Lines that begin with # and blank lines are skipped, all others are applied."""
    path = tmp_path / "options.conf"
    text = "# counts\ndeviceIterations(3)\n\n  # more\nreplicationFactor(2)\nTraining.gradientAccumulation(5)\n"
    path.write_text(text, encoding="utf-8")
    options = poptorch.Options()
    options.loadFromFile(str(path))

    assert_reads(options, device_iterations=3, replication_factor=2, Training__gradient_accumulation=5)


def test_a_file_may_use_enumerations(poptorch: Any, tmp_path: Path) -> None:
    """Values of poptorch are written with their full names."""
    path = tmp_path / "options.conf"
    path.write_text("outputMode(poptorch.OutputMode.EveryN, 4)\n", encoding="utf-8")
    options = poptorch.Options()
    options.loadFromFile(str(path))

    assert_reads(options, output_mode=poptorch.OutputMode.EveryN, output_return_period=4)


@pytest.mark.parametrize(
    "line", ["deviceIteration(3)", "deviceIterations(3", "deviceIterations('3')", "deviceIterations(three)", "3"],
    ids=["method", "syntax", "type", "name", "no-call"],
)  # fmt: skip
def test_a_wrong_line_is_named(poptorch: Any, line: str, tmp_path: Path) -> None:
    """A line that cannot be applied is a ConfigFileError that names the file and shows the line."""
    path = tmp_path / "options.conf"
    path.write_text(f"# fine\nreplicationFactor(2)\n{line}\n", encoding="utf-8")

    with check.raises(poptorch.options.ConfigFileError, what=f"a file with the line {line}") as raised:
        poptorch.Options().loadFromFile(str(path))

    for text in ("options.conf", line):
        check.contains(actual=str(raised.value), expected=text, what="the error")


def test_a_file_that_is_missing_is_an_error(poptorch: Any, tmp_path: Path) -> None:
    """A path that leads nowhere is a FileNotFoundError."""
    with check.raises(FileNotFoundError, what="a file that is missing"):
        poptorch.Options().loadFromFile(str(tmp_path / "nothing.conf"))


@pytest.mark.parametrize("row", READ_BACK_IN_JSON, ids=str)
def test_default_options_come_from_the_environment(poptorch: Any, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """POPTORCH_DEFAULT_OPTIONS is JSON that fresh options are set from."""
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", f'{{"{row.method}": {row.json}}}')

    assert_reads(poptorch.Options(), **{str(row.reads): evaluate(row.allowed)})


JSON = {
    '{"outputMode": "poptorch.OutputMode.Sum"}': ("output_mode", "OutputMode.Sum"),
    '{"connectionType": "ConnectionType.Never"}': ("connection_type", "ConnectionType.Never"),
    '{"Training": {"gradientAccumulation": 3}}': ("Training.gradient_accumulation", 3),
}


@pytest.mark.emulator
@pytest.mark.parametrize("text", JSON)
def test_json_names_members_and_sections(poptorch: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of an enumeration is named by its dotted name, and a section holds an object of its methods."""
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", text)
    name, expected = JSON[text]
    wanted = attrgetter(expected)(poptorch) if isinstance(expected, str) else expected

    check.equal(actual=attrgetter(name)(poptorch.Options()), expected=wanted, what=name)


def test_the_program_wins_over_the_environment(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default from the environment gives way to what the program sets."""
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"deviceIterations": 4}')

    assert_reads(poptorch.Options().deviceIterations(6), device_iterations=6)
