"""Switches and engine options are read from any text without a crash, and mean what they say."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.tensorflow.config.environment import (
    CATEGORIES,
    ENGINE_VARIABLE,
    FLAGS_VARIABLE,
    EnvironmentVariableError,
    Flags,
    engine_options,
    flags,
    report_directory,
    report_parts,
)
from tests.unit.examples import at_most

FEW = at_most(60)
KINDS: Dict[type, Any] = {bool: st.booleans(), int: st.integers(-1000, 1000), str: st.text(max_size=8)}
FLAGS = st.lists(
    st.sampled_from([field for field in fields(Flags) if field.name != "synthetic_data_categories"]),
    unique_by=lambda field: field.name,
).flatmap(lambda chosen: st.fixed_dictionaries({field.name: KINDS[type(field.default)] for field in chosen}))


def written(chosen: Dict[str, Any]) -> str:
    """Switches as a user writes them."""
    return " ".join(shlex.quote(f"--{name}={value}") for name, value in chosen.items())


def said(read: Callable[[], Any]) -> str:
    """The first word of the sentence that refuses, empty if nothing is refused."""
    try:
        read()
    except EnvironmentVariableError as error:
        return str(error).split()[0]
    return ""


@FEW
@given(FLAGS)
def test_switches_are_read_as_they_are_written(chosen: Dict[str, Any]) -> None:
    """Every switch gets its value, in any order, and the rest keep their defaults."""
    assert flags({FLAGS_VARIABLE: written(chosen)}) == Flags(**chosen)


@FEW
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text leads to another error than a sentence that names the variable."""
    assert said(lambda: flags({FLAGS_VARIABLE: text})) in ("", FLAGS_VARIABLE)


@FEW
@given(st.lists(st.sampled_from(CATEGORIES)), st.booleans())
def test_categories_are_synthetic_one_by_one(chosen: Any, everything: bool) -> None:
    """A category is synthetic if it is named, or if everything is."""
    text = f"--synthetic_data_categories={','.join(chosen)} --use_synthetic_data={everything}"
    read = flags({FLAGS_VARIABLE: text})

    assert [name for name in CATEGORIES if read.synthetic(name)] == [
        name for name in CATEGORIES if everything or name in chosen
    ]


def test_nothing_set_means_defaults() -> None:
    """Without the variables there are the defaults, and no report."""
    assert flags({}) == Flags()
    assert engine_options({}) == {}
    assert report_directory({}) is None


@FEW
@given(st.text())
def test_any_engine_options_are_read_or_refused(text: str) -> None:
    """No text leads to another error than a sentence that names the variable."""
    assert said(lambda: engine_options({ENGINE_VARIABLE: text})) in ("", ENGINE_VARIABLE)


@FEW
@given(st.sampled_from([None, True, False]), st.sampled_from([None, True, False]), st.sampled_from([None, True, False]))
def test_parts_of_reports(everything: Any, graph: Any, execution: Any) -> None:
    """A part is asked for by its own switch, else by the one for everything."""
    options = {
        "autoReport.all": everything,
        "autoReport.outputGraphProfile": graph,
        "autoReport.outputExecutionProfile": execution,
        "autoReport.directory": "here",
    }
    environment = {ENGINE_VARIABLE: json.dumps({name: value for name, value in options.items() if value is not None})}
    expected = [bool(everything if own is None else own) for own in (graph, execution)]
    parts = report_parts(environment)

    assert [parts.graph, parts.execution] == expected
    assert report_directory(environment) == (Path("here") if any(expected) else None)


def test_a_switch_of_reports_is_true_or_false() -> None:
    """Another value of a switch is refused with its name."""
    with pytest.raises(EnvironmentVariableError, match=r"autoReport\.outputGraphProfile.*maybe"):
        report_parts({ENGINE_VARIABLE: '{"autoReport.outputGraphProfile": "maybe"}'})
