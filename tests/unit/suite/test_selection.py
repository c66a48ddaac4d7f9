"""Options and environment variables decide what a run is about."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance import selection
from ipu_conformance.selection import Selection, select
from ipu_conformance.targets import Choice, TargetError


@pytest.fixture(autouse=True)
def two_frameworks_run(monkeypatch):
    """poptorch and paddle can run on any target, tensorflow on none."""

    def choose(framework, wanted, targets):
        if framework.name == "tensorflow":
            return Choice("tensorflow", None, None, 0, "tensorflow is not installed")
        return Choice(framework.name, "emulator", "emulator", 64, "built in")

    monkeypatch.setattr(selection, "choose", choose)


def test_by_default_what_can_run_takes_part():
    """Auto takes the frameworks that have a target and leaves out the others."""
    chosen = select({}, {})

    assert (chosen.level, chosen.frameworks, chosen.left_out) == ("premerge", ("poptorch", "paddle"), ("tensorflow",))


def test_an_option_beats_its_environment_variable():
    """The command line has the last word, an empty variable none."""
    environment = {"IPU_CONFORMANCE_LEVEL": "soak", "IPU_CONFORMANCE_COUNT": ""}

    assert select({}, environment).level == "soak"
    assert select({"level": "smoke"}, environment).level == "smoke"
    assert select({}, environment).count is None


def test_a_framework_that_was_not_asked_for_is_left_out():
    """Naming frameworks leaves out the rest."""
    assert select({"frameworks": "paddle"}, {}).left_out == ("poptorch", "tensorflow")


def test_a_framework_that_was_asked_for_and_is_missing_is_refused():
    """A missing framework that was named is an error, not an omission."""
    with pytest.raises(TargetError) as refusal:
        select({"frameworks": "paddle,tensorflow"}, {})

    assert str(refusal.value) == (
        "tensorflow was asked for and cannot run on target 'auto': tensorflow is not installed."
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"level": "quick"}, "--ipu-level is 'quick'; choose one of smoke, premerge, qualify, soak."),
        (
            {"frameworks": "jax"},
            "--ipu-frameworks names 'jax'; choose from poptorch, tensorflow, paddle, or auto.",
        ),
        ({"frameworks": " ,"}, "--ipu-frameworks is empty; choose from poptorch, tensorflow, paddle, or auto."),
        ({"count": "0"}, "--ipu-count is '0'; give a whole number from 1, or auto."),
        ({"count": "²"}, "--ipu-count is '²'; give a whole number from 1, or auto."),
        ({"count": "many"}, "--ipu-count is 'many'; give a whole number from 1, or auto."),
    ],
    ids=["level", "framework", "no-framework", "zero", "superscript", "word"],
)
def test_a_value_that_is_not_allowed_is_refused_in_a_sentence(options, sentence):
    """Bad values say what was given and what is allowed."""
    with pytest.raises(TargetError) as refusal:
        select(options, {})

    assert str(refusal.value) == sentence


def test_the_count_limits_what_the_target_offers():
    """A count that is given replaces the target's own."""
    assert (select({}, {}).ipus("paddle"), select({"count": "2"}, {}).ipus("paddle")) == (64, 2)


def test_a_framework_that_is_left_out_has_no_choice():
    """Only frameworks that take part have a choice."""
    chosen = select({"frameworks": "paddle"}, {})

    assert chosen.choice("poptorch") is None
    assert chosen.choice("paddle") == Choice("paddle", "emulator", "emulator", 64, "built in")


CHOICES = st.builds(
    Choice,
    framework=st.sampled_from(["poptorch", "tensorflow", "paddle"]),
    target=st.none() | st.text(),
    kind=st.none() | st.text(),
    ipus=st.integers(0, 64),
    reason=st.text(),
)
SELECTIONS = st.builds(
    Selection,
    wanted_target=st.text(),
    level=st.sampled_from(selection.LEVELS),
    choices=st.lists(CHOICES).map(tuple),
    left_out=st.lists(st.text()).map(tuple),
    count=st.none() | st.integers(1, 64),
)


@given(chosen=SELECTIONS)
def test_a_selection_survives_the_way_to_a_worker(chosen):
    """What a worker is handed, as plain data, is the same selection."""
    assert Selection.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen
    assert dataclasses.asdict(chosen) == chosen.to_dict()


def test_more_ipus_than_the_target_offers_are_refused():
    """A case that is skipped for want of IPUs would otherwise run and fail."""
    assert select({"target": "emulator", "count": "64"}, {}).count == 64
    with pytest.raises(TargetError, match="--ipu-count is 65, and target 'emulator' offers 64 IPUs; ask for no more"):
        select({"target": "emulator", "count": "65"}, {})
