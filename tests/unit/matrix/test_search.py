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


def test_of_known_killers_those_come_first_that_notice_the_most():
    """Few cases that notice many faults make short lists of levels."""
    hints = {"one": ["a::test_a", "a::test_b"], "two": ["a::test_b"], "three": ["a::test_c", "a::test_c", "a::test_b"]}

    tries = search.candidates(dict.fromkeys(hints, "nowhere"), {}, hints, 9)
    assert tries == {"one": ["a::test_b", "a::test_a"], "two": ["a::test_b"], "three": ["a::test_b", "a::test_c"]}


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
    seen = [{"fault": "elsewhere", "case": "paddle/test_a.py::test_two", "verdict": "killed"}]
    passed = {"fault": "graph-wrong", "case": three, "verdict": "passed"}

    assert search.provocations(faults, RECORDING, {}, seen, 9) == {
        "paddle/test_a.py::test_one[y]": ["split-wrong"],
        three: ["graph-wrong", "split-wrong"],
    }
    assert search.provocations(faults, RECORDING, {"slip:a:b": [one]}, [*seen, passed], 9) == {
        one: ["slip:a:b", "split-wrong"],
        three: ["split-wrong"],
    }


def _experience():
    meeting = {
        "a.py::test_saving": {"slip:m:save", "slip:m:load", "slip:m:often"},
        "a.py::test_two[x]": {"slip:m:often"},
        "b.py::test_three": {"slip:m:often", "slip:m:rare"},
    }
    return search.Experience(meeting)


def test_the_fault_is_tried_first_that_few_families_meet():
    """Nothing is known of any of them; one whose place names what the case is about comes before all."""
    experience = _experience()

    assert experience.next("b.py::test_three", ["slip:m:often", "slip:m:rare"]) == "slip:m:rare"
    assert experience.next("a.py::test_saving", ["slip:m:load", "slip:m:save", "slip:m:saving"]) == "slip:m:saving"


def test_what_other_cases_noticed_is_tried_first():
    """A kill in the same file says more than one elsewhere, and a try in vain says the opposite."""
    experience = _experience()
    often, rare = "slip:m:often", "slip:m:rare"
    before = experience.chance(often, "b.py::test_three")
    experience.add(often, "a.py::test_two[x]", "killed")
    elsewhere = experience.chance(often, "b.py::test_three")

    assert before < elsewhere < experience.chance(often, "a.py::test_saving")
    assert experience.next("b.py::test_three", [often, rare]) == often
    experience.add(often, "b.py::test_four", "broke")
    assert experience.chance(often, "b.py::test_three") < elsewhere
    assert experience.next("b.py::test_three", [often, rare]) == rare


def test_other_cases_of_a_family_follow_from_its_end():
    """The last one, the one in the middle and the one before that; no case comes twice."""
    many = [f"f[{number}]" for number in range(9)]

    assert [search.relative("f[0]", many, turn) for turn in range(5)] == ["f[0]", "f[8]", "f[5]", "f[3]", None]
    assert [search.relative("f[0]", many[:2], turn) for turn in range(3)] == ["f[0]", "f[1]", None]
    assert search.relative("f", ["f"], 1) is None


def test_the_form_of_a_slip_says_what_it_is_about():
    """A case of defaults is near to another default, one of names to a missing name."""
    assert search.words("slip:m:save(path)") >= {"save", "path", "default"}
    assert "name" in search.words("slip:m:-save")
    assert "name" not in search.words("slip:m:save")
    assert search.words("f.py::test_IPURunConfig_has_names[a]") >= {"config", "name"}
