"""Under a fault those cases run that pass its place, known killers and cheap ones first."""

from __future__ import annotations

from ipu_conformance.matrix import search

RECORDING = {
    "paddle/test_a.py::test_one[x]": {"verdict": "passed", "seconds": 0.5, "places": ["streams.split"]},
    "paddle/test_a.py::test_one[y]": {"verdict": "passed", "seconds": 0.25, "places": ["streams.split"]},
    "paddle/test_a.py::test_two": {"verdict": "passed", "seconds": 0.1, "places": []},
    "paddle/test_b.py::test_three": {"verdict": "passed", "seconds": 1.0, "places": ["streams.split", "ir.graph"]},
    "paddle/test_b.py::test_four": {"verdict": "failed", "seconds": 0.1, "places": ["ir.graph"]},
}


def test_a_case_that_reads_what_another_ran_passes_its_places():
    """The places of a file and framework are those of all its cases; a case that fails on the right device is out."""
    passed = search.passing(RECORDING)

    assert passed["streams.split"] == [
        "paddle/test_a.py::test_two",
        "paddle/test_a.py::test_one[y]",
        "paddle/test_a.py::test_one[x]",
        "paddle/test_b.py::test_three",
    ]
    assert passed["ir.graph"] == ["paddle/test_b.py::test_three"]


def test_known_killers_come_first_then_each_family_in_turn():
    """Of cases that pass the place themselves the cheapest of every family comes before any second."""
    faults = {"split-wrong": "streams.split", "never-passed": "off:paddle.nothing"}
    hints = {"split-wrong": ["paddle/test_b.py::test_three", "paddle/test_b.py::test_not_recorded"]}

    assert search.candidates(faults, RECORDING, hints, 9) == {
        "split-wrong": [
            "paddle/test_b.py::test_three",
            "paddle/test_b.py::test_not_recorded",
            "paddle/test_a.py::test_one[y]",
            "paddle/test_a.py::test_one[x]",
            "paddle/test_a.py::test_two",
        ],
        "never-passed": [],
    }
    assert len(search.candidates(faults, RECORDING, {}, 2)["split-wrong"]) == 2


def test_op_cases_of_one_program_are_a_group():
    """They share what was run, and those of another type of number do not."""
    softmax = "ops/test_ops_ipu.py::test_forward[paddle-softmax-softmax-float32-drawn]"
    other = "ops/test_ops_ipu.py::test_forward[paddle-softmax-log_softmax-float32-large]"
    half = "ops/test_ops_ipu.py::test_forward[paddle-softmax-log_softmax-float16-large]"

    assert search.group(softmax) == search.group(other) != search.group(half)


def test_a_family_that_noticed_nothing_is_provoked_by_what_few_others_pass():
    """The cheapest case, or one that is known to notice something; what it was tried under is left out."""
    faults = {"split-wrong": "streams.split", "graph-wrong": "ir.graph", "elsewhere": "plan.slots"}
    three, one = "paddle/test_b.py::test_three", "paddle/test_a.py::test_one[x]"
    seen = {"paddle/test_a.py::test_two"}

    assert search.provocations(faults, RECORDING, {}, {}, seen, 9) == {
        "paddle/test_a.py::test_one[y]": ["split-wrong"],
        three: ["graph-wrong", "split-wrong"],
    }
    assert search.provocations(faults, RECORDING, {"slip:a:b": [one]}, {three: {"graph-wrong"}}, seen, 9) == {
        one: ["slip:a:b", "split-wrong"],
        three: ["split-wrong"],
    }
