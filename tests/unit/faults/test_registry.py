"""The registry of faults: off by default, every row really wrong, names checked at the door."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np
import pytest

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core.plan import plan
from ipu_conformance.emulator.faults import catalogue, refusals
from ipu_conformance.emulator.faults.catalogue import Fault, FaultError


@dataclass(frozen=True)
class _Op:
    name: str
    ipu: Optional[int]
    stage: Optional[int]
    outputs: Tuple[str, ...] = ()


@dataclass(frozen=True)
class _Graph:
    ops: Tuple[_Op, ...]
    outputs: Tuple[str, ...] = ()
    tensors: Mapping[str, str] = field(default_factory=dict)


def _slots() -> np.ndarray:
    """Two stages, three micro-batches, forwards and backwards."""
    return plan((0, 1), "grouped", 3).columns


def _dealt() -> np.ndarray:
    """Distinct values with device iterations, accumulation, replicas and micro-batch pairwise different."""
    return np.arange(2 * 3 * 5 * 4, dtype=np.float32).reshape(2, 3, 5, 4)


def _weights(scale: float) -> Dict[str, np.ndarray]:
    return {name: scale * np.linspace(1, 2, 7, dtype=np.float32) for name in ("a", "b")}


def _rounding() -> Tuple[np.ndarray, Dict[str, Any]]:
    """Float16 values rounded up at random, among them one that is nearer below and one that is subnormal."""
    exact = np.array([1 + 0.25 * 2**-10, 3 * 2.0**-25], dtype=np.float64)
    value = np.array([1 + 2**-10, 2.0**-23], dtype=np.float16)
    return value, {"exact": exact, "stochastic": True}


def _narrowing(name: str) -> Tuple[np.ndarray, Dict[str, Any]]:
    exact = np.arange(3, dtype=name)
    return exact.astype(name.replace("64", "32")), {"exact": exact}


SITUATIONS: Dict[str, Callable[[], Tuple[Any, Dict[str, Any]]]] = {
    "plan.slots": lambda: (_slots(), {}),
    "streams.split": lambda: (_dealt(), {}),
    "streams.join": lambda: (_dealt(), {}),
    "reduce.gradients": lambda: ([_weights(r + 1) for r in range(3)], {"divisor": 6}),
    "execute.boundary": lambda: (_weights(2), {"replica": 0, "stage": 0, "micro_batch": 1, "kind": "forward"}),
    "numerics.round": _rounding,
    "numerics.partials": lambda: ("float32", {}),
    "weights.to_host": lambda: (_weights(1), {"host": _weights(2)}),
    "weights.to_device": lambda: (_weights(1 / 3), {"device": _weights(2)}),
    "ir.graph": lambda: (_Graph((_Op("first", 0, 0), _Op("last", 1, 1))), {}),
}
"""For every point a value and a context at which each of its faults shows."""


def _situation(fault: Fault) -> Tuple[Any, Dict[str, Any]]:
    if fault.point == "numerics.narrow":
        return _narrowing("int64" if "int" in fault.name else "float64")
    return SITUATIONS[fault.point]()


def _same(left: Any, right: Any) -> bool:
    """Whether two values are equal in structure, shape, dtype and bits."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return bool(left == right)


@pytest.fixture(autouse=True)
def _restored():
    """The table, the points and the set of active faults are as before after each test."""
    for front_end in catalogue.FRONT_ENDS:
        catalogue.load(front_end)  # a module registers its rows once: what a test loads would be gone for good
    mappings: List[Dict[str, Any]] = [catalogue._TABLE, faults.POINTS, catalogue.active, refusals._ROWS]
    copies = [dict(mapping) for mapping in mappings]
    yield
    faults.changes.clear()
    for mapping, before in zip(mappings, copies):
        mapping.clear()
        mapping.update(before)


CORE = [fault for fault in catalogue.table() if fault.module == catalogue.CORE and fault.point in faults.POINTS]
"""The core's faults of the seam; a front end that another test imported has added its own to the table."""


@pytest.mark.parametrize("fault", CORE, ids=lambda fault: fault.name)
def test_every_fault_changes_the_value_at_its_point(fault):
    """A fault of the table gives another value than the right one, and leaves the right one alone."""
    value, context = _situation(fault)
    untouched, _ = _situation(fault)
    with catalogue.inject(fault.name):
        if fault.name in ("boundary-stale-by-one", "first-weights-for-all"):
            faults.at(fault.point, _weights(3), **context)
        wrong = faults.at(fault.point, value, **context)

    assert not _same(value, wrong)
    assert _same(untouched, value)


@pytest.mark.parametrize("point", sorted(faults.POINTS))
def test_apply_is_the_identity_when_nothing_is_injected(point):
    """With no fault on, a hook point gives back the very object, and ``active`` is false."""
    value = object()

    assert not catalogue.active
    assert faults.at(point, value) is value


def test_a_fault_touches_its_own_point_only():
    """A fault of one point leaves the values of every other point alone."""
    value = object()
    for fault in CORE:
        with catalogue.inject(fault.name):
            for point in faults.POINTS:
                assert point == fault.point or faults.at(point, value) is value


def test_every_area_has_a_fault_of_the_core():
    """No area is without a fault that every front end can have."""
    areas = {fault.area for fault in catalogue.table() if fault.module == catalogue.CORE}

    assert areas == set(catalogue.AREAS) - {"refusal"}


def test_injection_ends_with_its_block():
    """A fault is off after its block; blocks nest."""
    with catalogue.inject("update-halved"):
        with catalogue.inject("update-halved", "ir-drop-op"):
            assert set(catalogue.active) == {"update-halved", "ir-drop-op"}
        assert set(catalogue.active) == {"update-halved"}
    assert not catalogue.active


def test_injection_ends_with_an_exception():
    """An exception inside the block turns the fault off and passes through."""
    with pytest.raises(ZeroDivisionError), catalogue.inject("update-halved"):
        _ = 1 // 0
    assert not catalogue.active


def test_two_faults_of_one_point_both_apply():
    """Faults of one point apply in the order in which they were named."""
    with catalogue.inject("boundary-halved", "boundary-stale-by-one"):
        faults.at("execute.boundary", np.float32(8), replica=0, stage=0, kind="forward")
        actual = faults.at("execute.boundary", np.float32(2), replica=0, stage=0, kind="forward")

    assert actual == np.float32(4)


def test_a_stale_boundary_does_not_mix_boundaries():
    """Each replica and stage has a boundary of its own, and a new injection remembers nothing."""
    with catalogue.inject("boundary-stale-by-one"):
        faults.at("execute.boundary", 1, replica=0, stage=0, kind="forward")
        assert faults.at("execute.boundary", 2, replica=1, stage=0, kind="forward") == 2
        assert faults.at("execute.boundary", 3, replica=0, stage=0, kind="forward") == 1
    with catalogue.inject("boundary-stale-by-one"):
        assert faults.at("execute.boundary", 4, replica=0, stage=0, kind="forward") == 4


def test_streams_faults_deal_out_what_their_names_say():
    """The transposing faults number the samples in the other order, slot by slot."""
    value = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    with catalogue.inject("device-iterations-transposed"):
        transposed = faults.at("streams.split", value)
    with catalogue.inject("accumulation-and-replicas-transposed"):
        inner = faults.at("streams.split", value)
    with catalogue.inject("replica-order-swapped"):
        swapped = faults.at("streams.split", value)

    for d, g, r in np.ndindex(2, 3, 5):
        assert transposed[d, g, r] == (g * 2 + d) * 5 + r
        assert inner[d, g, r] == (d * 5 + r) * 3 + g
        assert swapped[d, g, r] == value[d, g, 4 - r]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("last-replica-not-reduced", [1.0, 2.0, 0.0]),
        ("first-replica-only", [3.0, 0.0, 0.0]),
        ("sum-instead-of-mean", [6.0, 12.0, 24.0]),
        ("gradient-sign-flipped", [-1.0, -2.0, -4.0]),
    ],
)
def test_reduce_faults_change_the_contributions(name, expected):
    """Each reduce fault changes the replicas' contributions by the factor its name says."""
    with catalogue.inject(name):
        actual = faults.at("reduce.gradients", [np.float32(1), np.float32(2), np.float32(4)], divisor=6)

    assert expected == actual


def test_truncation_never_moves_away_from_zero():
    """Rounding toward zero gives the largest float16 that is not beyond the exact value."""
    exact = np.concatenate([np.linspace(-3, 3, 1001), [1e9, -1e9, 1e-9]])
    with catalogue.inject("round-toward-zero"):
        actual = faults.at("numerics.round", exact, exact=exact)

    assert (np.abs(actual.astype(np.float64)) <= np.abs(exact)).all()
    with np.errstate(over="ignore"):
        further = np.nextafter(actual, np.copysign(np.float16(np.inf), exact.astype(np.float16)))
    assert (np.abs(further.astype(np.float64)) > np.abs(exact)).all()


def test_an_unknown_name_offers_the_nearest_and_the_command_that_lists_all():
    """There are hundreds of them."""
    with pytest.raises(FaultError, match="did you mean 'sum-instead-of-mean'") as info:
        catalogue.get("sum-instead-of-means")
    assert str(info.value).startswith("no fault is named 'sum-instead-of-means';")
    assert "faults list" in str(info.value)
    assert len(str(info.value)) < 200


WITHOUT_FRAMEWORKS = """
import sys
for framework in ("torch", "tensorflow", "paddle"):
    sys.modules[framework] = None
from ipu_conformance.emulator.faults import asked
asked.require(["update-halved", "tensors-say-cpu"], ["poptorch", "paddle"])
"""


def test_a_name_is_known_where_no_framework_is_installed():
    """A run of one framework has no other; whoever reads the catalogues imports none."""
    answer = subprocess.run([sys.executable, "-c", WITHOUT_FRAMEWORKS], capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stderr


def test_injecting_an_unknown_name_injects_nothing():
    """One unknown name among good ones leaves every fault off."""
    with pytest.raises(FaultError, match="'nonsense'"), catalogue.inject("ir-drop-op", "nonsense"):
        pass
    assert not catalogue.active


def test_the_environment_names_faults():
    """The variable's comma-separated names are on after the explicit call, and only then."""
    environment = {catalogue.ENVIRONMENT: "ir-drop-op, boundary-halved"}
    assert catalogue.activate_from_environment("core", environment) == ("ir-drop-op", "boundary-halved")
    assert set(catalogue.active) == {"ir-drop-op", "boundary-halved"}


def test_a_front_end_has_its_own_faults_alone():
    """The variable may name faults of several front ends."""
    environment = {catalogue.ENVIRONMENT: "ir-drop-op,off:paddle.nesterov"}
    catalogue.activate_from_environment("poptorch", environment)

    assert set(catalogue.active) == {"ir-drop-op"}


def test_the_control_of_a_front_end_loads_no_other(monkeypatch):
    """Its motions would import the frameworks of all: a process that logs to a file would log to the terminal, too."""
    loaded: List[str] = []
    monkeypatch.setattr(catalogue, "load", loaded.append)
    monkeypatch.setattr(catalogue, "motions", contextlib.nullcontext)
    catalogue.activate_from_environment("poptorch", {catalogue.ENVIRONMENT: catalogue.INERT})

    assert loaded == ["poptorch"]


@pytest.mark.parametrize("text", ["", " , "])
def test_an_empty_variable_activates_nothing(text):
    """An unset or empty variable leaves the device right."""
    assert catalogue.activate_from_environment("core", {catalogue.ENVIRONMENT: text}) == ()
    assert not catalogue.active


def test_the_environment_of_the_process_is_the_default(monkeypatch):
    """Without an argument the process's own environment is read; one bad name activates none."""
    monkeypatch.setenv(catalogue.ENVIRONMENT, "ir-drop-op,nonsense")
    with pytest.raises(FaultError, match="nonsense"):
        catalogue.activate_from_environment("core")
    assert not catalogue.active


def test_a_new_row_is_used_like_the_others():
    """A registered fault is on inside its block and appears in the table."""
    fault = catalogue.register(
        Fault("slots-forgotten", "plan", "plan.slots", "there are no slots", lambda value, **context: value[:0])
    )

    with catalogue.inject("slots-forgotten"):
        assert len(faults.at("plan.slots", _slots())) == 0
    assert fault in catalogue.table()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Not_Kebab"}, "kebab-case"),
        ({"name": "ir-drop-op"}, "registered already"),
        ({"area": "elsewhere"}, "the areas are plan, streams"),
        ({"point": "nowhere"}, "no point of the seam is named 'nowhere'"),
    ],
)
def test_a_bad_row_is_refused(change, message):
    """A row needs a new kebab-case name, a known area and a known point."""
    good = Fault("brand-new", "ir", "ir.graph", "nothing", lambda value, **_: value)
    with pytest.raises(FaultError, match=message):
        catalogue.register(replace(good, **change))


def test_the_table_says_what_each_fault_does():
    """Names are unique and every row has a sentence of its own."""
    assert len({fault.name for fault in CORE}) == len({fault.what for fault in CORE}) == len(CORE)
    assert all(fault.what for fault in CORE)


# Functions that are replaced


@pytest.mark.parametrize("holder", ["streams", "engine"])
def test_a_function_is_replaced_wherever_the_emulator_holds_it(holder, monkeypatch):
    """A module that imported the function by name gets the wrong one too, and both are right again afterwards."""
    module: Any = importlib.import_module("ipu_conformance.emulator.core.plan")

    held = importlib.import_module(f"ipu_conformance.emulator.core.{holder}")
    right = lambda: 3  # noqa: E731  one object in both modules
    for each in (module, held):
        monkeypatch.setattr(each, "total", right, raising=False)
    catalogue.patch("total-doubled", "plan", "core.plan:total", "twice")(lambda original: 2 * original())

    with catalogue.inject("total-doubled"):
        assert (module.total(), held.total()) == (6, 6)
    assert (module.total(), held.total()) == (3, 3)


class _Device:
    kind = "right"

    @property
    def answer(self):
        return 3

    @staticmethod
    def count():
        return 5

    @classmethod
    def named(cls):
        return cls.kind


class _Other(_Device):
    """Inherits everything."""


@pytest.mark.parametrize(
    ("name", "read"),
    [("answer", lambda device: device.answer), ("count", lambda device: device.count()),
     ("named", lambda device: device.named())],
)  # fmt: skip
@pytest.mark.parametrize("kind", [_Device, _Other])
def test_properties_and_methods_of_classes_are_replaced(kind, name, read, monkeypatch):
    """A property, a static method and a class method keep what they are, and what is inherited is left to its owner."""
    module: Any = importlib.import_module("ipu_conformance.emulator.core.plan")

    monkeypatch.setattr(module, "Device", kind, raising=False)
    catalogue.patch("answer-repeated", "plan", f"core.plan:Device.{name}", "twice")(
        lambda original, *arguments: [original(*arguments)] * 2
    )
    right = read(kind())

    with catalogue.inject("answer-repeated"):
        assert read(kind()) == [right, right]
        assert read(_Device()) == ([right, right] if kind is _Device else right)
    assert read(kind()) == right
    assert name not in vars(_Other)


def test_a_name_stands_for_something_else(monkeypatch):
    """A name is replaced or gone where it was asked for and nowhere else, and is itself again afterwards."""
    module: Any = importlib.import_module("ipu_conformance.emulator.core.plan")
    other: Any = importlib.import_module("ipu_conformance.emulator.core.streams")
    limit = object()
    for holder in (module, other):
        monkeypatch.setattr(holder, "limit", limit, raising=False)
    for name, wrong in (
        ("limit-doubled", lambda value: (value, value)),
        ("limit-gone", catalogue.always(catalogue.GONE)),
    ):
        catalogue.register(Fault(name, "plan", "name:core.plan:limit", "another limit", wrong), catalogue.CORE)

    with catalogue.inject("limit-doubled"):
        assert module.limit == (limit, limit)
        assert other.limit is limit
    with catalogue.inject("limit-gone"):
        assert not hasattr(module, "limit")
        assert other.limit is limit

    assert module.limit is limit


def test_a_process_that_is_started_has_the_fault(monkeypatch):
    """The names of the faults that are on are in the environment as long as they are."""
    monkeypatch.delenv(catalogue.ENVIRONMENT, raising=False)
    with catalogue.inject("ir-drop-op"), catalogue.inject("boundary-halved"):
        assert os.environ[catalogue.ENVIRONMENT] == "ir-drop-op,boundary-halved"
    assert catalogue.ENVIRONMENT not in os.environ


def test_a_function_that_remembers_starts_with_nothing(monkeypatch):
    """What a replaced function keeps is gone with its injection."""
    module: Any = importlib.import_module("ipu_conformance.emulator.core.plan")

    monkeypatch.setattr(module, "total", lambda: 3, raising=False)

    def counted(memory, original):
        memory["calls"] = memory.get("calls", 0) + 1
        return memory["calls"]

    catalogue.patch("calls-counted", "plan", "core.plan:total", "counts", remembers=True)(counted)
    for _ in range(2):
        with catalogue.inject("calls-counted"):
            assert [module.total(), module.total()] == [1, 2]


@pytest.mark.parametrize("place", ["core.plan:nothing", "core.nowhere:plan", "core.plan:Plan.nothing"])
def test_a_place_that_is_not_there_is_one_sentence(place):
    """A patch of a function that was renamed says so instead of changing nothing."""
    catalogue.patch("renamed", "plan", place, "nothing")(lambda original: None)

    with pytest.raises(FaultError, match=f"the emulator has no function at '{place}'"), catalogue.inject("renamed"):
        pass


# Refusals


def test_a_refusal_raises_where_its_rule_says():
    """The row raises its error with its sentence, and lets everything else pass."""
    row = faults.refuse(
        "paddle.test-count", when=lambda count: count > 3, error=ValueError, sentence="{count} is given; at most 3."
    )

    row(count=3)
    with pytest.raises(ValueError, match=r"^5 is given; at most 3\.$"):
        row(count=5)


def test_every_refusal_has_a_fault_that_leaves_it_out():
    """``off:<rule>`` is in the table, and under it the device accepts what it must refuse."""
    row = faults.refuse("paddle.test-count", when=lambda: True, error="builtins.KeyError", sentence="no")

    with catalogue.inject("off:paddle.test-count") as (fault,):
        row()
    assert (fault.front_end, fault.area) == ("paddle", "refusal")
    with pytest.raises(KeyError):
        row()


def test_a_rule_is_declared_once():
    """Two rows of one rule are refused."""
    faults.refuse("paddle.test-count", when=lambda: True, error=ValueError, sentence="no")

    with pytest.raises(ValueError, match="declared already"):
        faults.refuse("paddle.test-count", when=lambda: True, error=ValueError, sentence="no")


# The control


def test_the_control_changes_nothing_and_passes_every_place(monkeypatch):
    """Under ``inert`` each place is passed with the right result: points, functions and refusals."""
    # Faults of front ends, which other tests of the process have registered, would import every framework.
    for fault in catalogue.table():
        if fault.front_end != "core":
            catalogue._TABLE.pop(fault.name, None)
    module: Any = importlib.import_module("ipu_conformance.emulator.core.plan")

    monkeypatch.setattr(module, "total", lambda: 3, raising=False)
    catalogue.patch("total-doubled", "plan", "core.plan:total", "twice")(lambda original: 2 * original())
    row = faults.refuse("paddle.test-count", when=lambda: False, error=ValueError, sentence="no")
    passed: List[str] = []
    value = object()

    with catalogue.motions(passed.append):
        assert module.total() == 3
        assert faults.at("streams.split", value) is value
        row()
    with catalogue.inject("inert") as chosen:
        assert module.total() == 3

    assert passed == ["core.plan:total", "streams.split", "off:paddle.test-count"]
    assert chosen == ()
    assert not faults.changes
