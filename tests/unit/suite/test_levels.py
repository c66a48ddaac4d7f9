"""Levels are lists that follow from measured times and kills; a list that was changed by hand is refused."""

from __future__ import annotations

import json

import pytest

from ipu_conformance import cli, levels
from ipu_conformance.levels import Levels, LevelsError

CASES = {
    "paddle/ir/test_a_ipu.py::test_one[x]": 0.5,
    "paddle/ir/test_a_ipu.py::test_one[y]": 0.25,
    "paddle/ir/test_a_ipu.py::test_two": 0.375,
    "poptorch/ir/test_a_ipu.py::test_one[z]": 4.0,
    "poptorch/ir/test_a_ipu.py::test_three[z]": 5.0,
    "ops/test_ops_ipu.py::test_forward[paddle-softmax-log_softmax-float32-drawn]": 0.125,
    "ops/test_ops_ipu.py::test_forward[paddle-softmax-softmax-float32-drawn]": 0.0625,
}


def _listed(table):
    return {f"{family}[{each}]" if each else family for family, members in table.items() for each in members}


def test_smoke_has_the_cheapest_case_of_every_area_of_every_framework():
    """An area is a file, or a family of ops, whose cases share their program's time; a dear one begins at premerge."""
    made = levels.computed(CASES, {})

    assert _listed(made.smoke) == {
        "paddle/ir/test_a_ipu.py::test_one[y]",
        "ops/test_ops_ipu.py::test_forward[paddle-softmax-log_softmax-float32-drawn]",
    }


def test_of_the_cheap_cases_of_an_area_smoke_has_the_one_that_notices_the_most():
    """A case that notices faults stands for its area in place of the cheapest."""
    kills = {"a": ["paddle/ir/test_a_ipu.py::test_two"], "b": ["paddle/ir/test_a_ipu.py::test_two"]}
    made = levels.computed(CASES, kills)

    assert "paddle/ir/test_a_ipu.py::test_two" in _listed(made.smoke)
    assert "paddle/ir/test_a_ipu.py::test_one[y]" not in _listed(made.smoke)


@pytest.mark.parametrize(("budget", "cases"), [(9.0, 3), (0.7, 2)])
def test_smoke_goes_on_until_it_notices_enough_or_its_time_is_up(budget, cases, monkeypatch):
    """Beyond one case an area, what notices the most for its time is in."""
    monkeypatch.setattr(levels, "SMOKE_SECONDS", budget)
    kills = {"a": ["paddle/ir/test_a_ipu.py::test_one[y]"], "b": ["paddle/ir/test_a_ipu.py::test_one[x]"]}

    assert len(_listed(levels.computed(CASES, kills).smoke)) == cases


def test_premerge_has_one_case_of_every_kind_that_is_not_dear(monkeypatch):
    """With no time left beyond that, a kind is a test function on a framework, or an op."""
    monkeypatch.setattr(levels, "DEAR_SECONDS", 0.5)
    monkeypatch.setattr(levels, "PREMERGE_SECONDS", 0.0)
    made = levels.computed(CASES, {})

    assert set(CASES) - _listed(made.premerge) == {
        "paddle/ir/test_a_ipu.py::test_one[x]",
        "poptorch/ir/test_a_ipu.py::test_one[z]",
        "poptorch/ir/test_a_ipu.py::test_three[z]",
    }


def test_premerge_has_a_killer_of_every_fault_however_dear_and_a_second_that_is_not(monkeypatch):
    """The cheapest killers of different families are in; a case that is gone is not."""
    monkeypatch.setattr(levels, "DEAR_SECONDS", 0.5)
    monkeypatch.setattr(levels, "PREMERGE_SECONDS", 0.0)
    killers = {
        "slow": ["poptorch/ir/test_a_ipu.py::test_three[z]"],
        "quick": ["paddle/ir/test_a_ipu.py::test_one[x]", "paddle/ir/test_a_ipu.py::test_two"],
        "gone": ["paddle/ir/test_a_ipu.py::test_that_was_renamed"],
    }
    made = levels.computed(CASES, killers)

    assert "poptorch/ir/test_a_ipu.py::test_three[z]" in _listed(made.premerge)
    assert "paddle/ir/test_a_ipu.py::test_one[x]" in _listed(made.premerge)
    assert not any("renamed" in case for case in _listed(made.premerge))


def test_premerge_shows_every_workload_however_dear(monkeypatch):
    """The cheapest case of a family that leaves a dump of a workload is in."""
    monkeypatch.setattr(levels, "DEAR_SECONDS", 0.5)
    monkeypatch.setattr(levels, "PREMERGE_SECONDS", 0.0)
    monkeypatch.setattr(levels, "SHOWN", ("paddle/ir/test_a_ipu.py::test_one", "poptorch/ir/test_a_ipu.py::test_three"))
    listed = _listed(levels.computed(CASES, {}).premerge)

    assert {"paddle/ir/test_a_ipu.py::test_one[y]", "poptorch/ir/test_a_ipu.py::test_three[z]"} <= listed
    assert not {"paddle/ir/test_a_ipu.py::test_one[x]", "poptorch/ir/test_a_ipu.py::test_one[z]"} & listed


def test_the_shipped_premerge_shows_every_workload():
    """So that every verdict comes with the dumps of all five."""
    shipped = levels.shipped()
    unshown = [family for family in levels.SHOWN if not {*shipped.smoke.get(family, ()), *shipped.premerge[family]}]

    assert not unshown
    assert len({family.rpartition("::")[0] for family in levels.SHOWN}) == 5


def test_time_that_is_left_is_filled_with_the_cheapest(monkeypatch):
    """What fits the budget is in, from the cheapest on."""
    monkeypatch.setattr(levels, "PREMERGE_SECONDS", sum(CASES.values()) - 5.0)
    made = levels.computed(CASES, {})

    assert set(CASES) - _listed(made.premerge) == {"poptorch/ir/test_a_ipu.py::test_three[z]"}


LOOKING = {
    "training/test_a_ipu.py::test_one[paddle-mlp]": 5.0,
    "training/test_b_ipu.py::test_two[paddle-mlp]": 0.01,
    "training/test_b_ipu.py::test_two[poptorch-mlp]": 0.02,
    "tensorflow/training/test_mnist_ipu.py::test_one[two replicas]": 4.0,
    "tensorflow/training/test_mnist_ipu.py::test_two[two replicas]": 0.03,
    "tensorflow/training/test_mnist_ipu.py::test_all": 0.04,
}


def test_the_first_case_that_looks_at_a_run_pays_for_it():
    """A case was cheap because another had made its run: alone it would make it."""
    made = levels.computed(LOOKING, {})

    assert _listed(made.smoke) == {"training/test_b_ipu.py::test_two[poptorch-mlp]"}


@pytest.mark.parametrize(("budget", "cases"), [(4.1, 2), (8.2, 4), (14.0, 6)])
def test_who_looks_at_a_run_that_is_made_adds_nothing_but_its_own_time(budget, cases, monkeypatch):
    """The second look at a run comes with the first, and not without it."""
    monkeypatch.setattr(levels, "PREMERGE_SECONDS", budget)

    assert len(_listed(levels.computed(LOOKING, {}).premerge)) == cases


@pytest.mark.parametrize(
    ("case", "level"),
    [
        ("a.py::test_one[x]", "smoke"),
        ("a.py::test_one[y]", "premerge"),
        ("a.py::test_one[z]", "qualify"),
        ("a.py::test_new[z]", "premerge"),
        ("a.py::test_plain", "premerge"),
    ],
)
def test_a_family_that_is_not_known_runs_at_premerge(case, level):
    """A new case runs by default until the lists are remade."""
    lists = Levels(
        {"a.py::test_one": frozenset("x")}, {"a.py::test_one": frozenset("xy"), "a.py::test_plain": frozenset([""])}
    )

    assert lists.of(case) == level


def test_lists_come_back_from_their_file(tmp_path):
    """What is written is read again, digest and all."""
    made = levels.computed(CASES, {})
    made.write(tmp_path / "levels.json")

    assert levels.read(tmp_path / "levels.json") == made


def _changed(data):
    data["premerge"]["paddle/ir/test_a_ipu.py::test_two"] = []
    return json.dumps(data)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (_changed, "was changed by hand"),
        (lambda data: "{", "holds no lists of levels"),
        (lambda data: "[]", "holds no lists of levels"),
        (lambda data: json.dumps({"smoke": {}}), "holds no lists of levels"),
    ],
)
def test_a_damaged_list_is_one_sentence(damage, sentence, tmp_path):
    """A list that does not have its digest, or is none, is refused."""
    path = tmp_path / "levels.json"
    levels.computed(CASES, {}).write(path)
    path.write_text(damage(json.loads(path.read_text())))

    with pytest.raises(LevelsError, match=sentence):
        levels.read(path)


NOTES = {"cases": {"tests/ipu/paddle/ir/test_a_ipu.py::test_one[x]": 0.25, "tests/unit/test_a.py::test_one": 1.0}}


@pytest.mark.parametrize(("words", "seconds"), [((), 0.25), (("--slower", "2.5"), 0.625)])
def test_times_are_those_of_the_machine_that_the_lists_are_for(words, seconds, tmp_path, monkeypatch):
    """The notes of a faster machine count for more; tests that are not of the suite do not count."""
    (tmp_path / "gw0.json").write_text(json.dumps(NOTES))
    priced = {}

    def computed(cases, kills):
        priced.update(cases)
        return Levels({}, {})

    monkeypatch.setattr(levels, "computed", computed)
    monkeypatch.setattr(Levels, "write", lambda self: None)

    assert cli.main(["levels", "update", str(tmp_path), *words]) == 0
    assert priced == {"paddle/ir/test_a_ipu.py::test_one[x]": seconds}


@pytest.mark.parametrize("factor", ["0", "-2.5", "nan", "inf", "twice"])
def test_a_factor_that_is_none_is_refused(factor, tmp_path, capsys):
    """It is a number above zero."""
    with pytest.raises(SystemExit):
        cli.main(["levels", "update", str(tmp_path), "--slower", factor])

    assert f"{factor!r} is no factor; give a number above zero" in capsys.readouterr().err
