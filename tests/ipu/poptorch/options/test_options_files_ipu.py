"""Options from JSON, from files and from the environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest

from ipu_conformance import check

from .options_table import IN_JSON, OPTIONS, READ_BACK, Row, assert_reads, evaluate, reach, with_one

READ_BACK_IN_JSON = tuple(row for row in READ_BACK if row.json is not None)


@pytest.fixture(autouse=True)
def _no_default_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the cases does not count."""
    monkeypatch.delenv("POPTORCH_DEFAULT_OPTIONS", raising=False)


@pytest.mark.parametrize("row", IN_JSON, ids=str)
def test_json_calls_the_method_that_it_names(poptorch: Any, row: Row) -> None:
    """A key names a method, and the value is its argument: the options equal those set by hand."""
    from_json, by_hand = poptorch.Options(), with_one(row)
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


WRONG_JSON = {
    "type": (AssertionError, '{"deviceIterations": "three"}'),
    "method": (Exception, '{"deviceIteration": 3}'),
    "sub-set": (Exception, '{"Train.gradientAccumulation": 3}'),
    "broken": (Exception, '{"deviceIterations": 3'),
    "list": (Exception, "[1, 2]"),
}
"""No document says of which class an error is, but for a value: it is checked like one set by hand."""


@pytest.mark.parametrize("what", WRONG_JSON)
def test_json_that_cannot_be_applied_is_an_error(poptorch: Any, what: str) -> None:
    """A wrong value, a method that does not exist, or text that is no JSON object is an error, and nothing is set."""
    error, text = WRONG_JSON[what]
    options = poptorch.Options()
    before = options.toDict()
    with check.raises(error, what=f"from_json({text!r})"):
        options.from_json(text)

    check.equal(actual=options.toDict(), expected=before, what="toDict() after JSON that cannot be applied")


@pytest.fixture
def load(poptorch: Any, tmp_path: Path) -> Callable[[str], Any]:
    """What options are set from a file of a text."""

    def loaded(text: str) -> Any:
        path, options = tmp_path / "options.conf", poptorch.Options()
        path.write_text(text, encoding="utf-8")
        check.holds(options.loadFromFile(str(path)) is options, "loadFromFile does not return the options.")
        return options

    return loaded


@pytest.mark.parametrize("row", [row for row in OPTIONS if "Strategy" not in row.method], ids=str)
def test_a_line_of_a_file_sets_an_option(load: Callable[[str], Any], row: Row) -> None:
    """A file holds calls as they would be written behind the options."""
    loaded, by_hand = load(f"{row.method}({row.allowed})\n").toDict(), with_one(row).toDict()

    check.equal(actual=loaded, expected=by_hand, what=f"toDict() with {row.method} from a file")


def test_a_file_may_hold_comments_and_blank_lines(poptorch: Any, load: Callable[[str], Any]) -> None:
    """Lines that begin with # and blank lines are skipped, all others are applied, also with several arguments."""
    counts = "# counts\ndeviceIterations(3)\n\n  # more\nreplicationFactor(2)\nTraining.gradientAccumulation(5)\n"
    options = load(f"{counts}outputMode(poptorch.OutputMode.EveryN, 4)\n")

    assert_reads(options, device_iterations=3, replication_factor=2, Training__gradient_accumulation=5)
    assert_reads(options, output_mode=poptorch.OutputMode.EveryN, output_return_period=4)


@pytest.mark.parametrize(
    "line", ["deviceIteration(3)", "deviceIterations(3", "deviceIterations('3')", "deviceIterations(three)", "3"],
    ids=["method", "syntax", "type", "name", "no-call"],
)  # fmt: skip
def test_a_wrong_line_is_named(poptorch: Any, load: Callable[[str], Any], line: str) -> None:
    """A line that cannot be applied is a ConfigFileError that names the file and shows the line."""
    with check.raises(poptorch.options.ConfigFileError, what=f"a file with the line {line}") as raised:
        load(f"# fine\nreplicationFactor(2)\n{line}\n")

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
    '{"outputMode": "poptorch.OutputMode.Sum"}': ("output_mode", "poptorch.OutputMode.Sum"),
    '{"connectionType": "ConnectionType.Never"}': ("connection_type", "poptorch.ConnectionType.Never"),
    '{"Training": {"gradientAccumulation": 3}}': ("Training.gradient_accumulation", "3"),
    '{"outputMode": ["OutputMode.EveryN", 3]}': ("output_return_period", "3"),
    '{"_Popart.set": ["autoRecomputation", 3]}': ("_Popart.options", "{'autoRecomputation': 3}"),
}


@pytest.mark.emulator
@pytest.mark.parametrize("text", JSON)
def test_json_names_members_and_sections(poptorch: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of an enumeration is named by its dotted name, and a section holds an object of its methods."""
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", text)
    name, expected = JSON[text]

    assert_reads(poptorch.Options(), **{name: evaluate(expected)})


def test_the_program_wins_over_the_environment(poptorch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default from the environment gives way to what the program sets."""
    monkeypatch.setenv("POPTORCH_DEFAULT_OPTIONS", '{"deviceIterations": 4}')

    assert_reads(poptorch.Options().deviceIterations(6), device_iterations=6)
