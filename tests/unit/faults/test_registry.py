"""The registry of faults: off by default, every row really wrong, names checked at the door."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import pytest

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core.plan import plan
from ipu_conformance.emulator.faults import Fault, FaultError


@dataclass(frozen=True)
class _Op:
    name: str
    ipu: Optional[int]
    stage: Optional[int]


@dataclass(frozen=True)
class _Graph:
    ops: Tuple[_Op, ...]


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
    "update.step": lambda: (_weights(2), {"before": _weights(1), "step": 1, "replica": 2, "replicas": 3}),
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
    mappings: List[Dict[str, Any]] = [faults._TABLE, faults.POINTS, faults.active]
    copies = [dict(mapping) for mapping in mappings]
    yield
    for mapping, before in zip(mappings, copies):
        mapping.clear()
        mapping.update(before)


CORE = [fault for fault in faults.table() if fault.module == faults.CORE]
"""The faults of the core; a front end that another test imported has added its own to the table."""


@pytest.mark.parametrize("fault", CORE, ids=lambda fault: fault.name)
def test_every_fault_changes_the_value_at_its_point(fault):
    """A fault of the table gives another value than the right one, and leaves the right one alone."""
    value, context = _situation(fault)
    untouched, _ = _situation(fault)
    with faults.inject(fault.name):
        if fault.name == "boundary-stale-by-one":
            faults.apply(fault.point, _weights(3), **context)
        wrong = faults.apply(fault.point, value, **context)

    assert not _same(value, wrong)
    assert _same(untouched, value)


@pytest.mark.parametrize("point", sorted(faults.POINTS))
def test_apply_is_the_identity_when_nothing_is_injected(point):
    """With no fault on, a hook point gives back the very object, and ``active`` is false."""
    value = object()

    assert not faults.active
    assert faults.apply(point, value) is value


def test_a_fault_touches_its_own_point_only():
    """A fault of one point leaves the values of every other point alone."""
    value = object()
    for fault in CORE:
        with faults.inject(fault.name):
            for point in faults.POINTS:
                assert point == fault.point or faults.apply(point, value) is value


def test_every_area_has_a_fault_of_the_core():
    """No area is without a fault that every front end can have."""
    assert {fault.area for fault in CORE} == set(faults.AREAS)


def test_injection_ends_with_its_block():
    """A fault is off after its block; blocks nest."""
    with faults.inject("update-halved"):
        with faults.inject("update-halved", "ir-drop-op"):
            assert set(faults.active) == {"update-halved", "ir-drop-op"}
        assert set(faults.active) == {"update-halved"}
    assert not faults.active


def test_injection_ends_with_an_exception():
    """An exception inside the block turns the fault off and passes through."""
    with pytest.raises(ZeroDivisionError), faults.inject("update-halved"):
        _ = 1 // 0
    assert not faults.active


def test_two_faults_of_one_point_both_apply():
    """Faults of one point apply in the order in which they were named."""
    with faults.inject("boundary-halved", "boundary-stale-by-one"):
        faults.apply("execute.boundary", np.float32(8), replica=0, stage=0, kind="forward")
        actual = faults.apply("execute.boundary", np.float32(2), replica=0, stage=0, kind="forward")

    assert actual == np.float32(4)


def test_a_stale_boundary_does_not_mix_boundaries():
    """Each replica and stage has a boundary of its own, and a new injection remembers nothing."""
    with faults.inject("boundary-stale-by-one"):
        faults.apply("execute.boundary", 1, replica=0, stage=0, kind="forward")
        assert faults.apply("execute.boundary", 2, replica=1, stage=0, kind="forward") == 2
        assert faults.apply("execute.boundary", 3, replica=0, stage=0, kind="forward") == 1
    with faults.inject("boundary-stale-by-one"):
        assert faults.apply("execute.boundary", 4, replica=0, stage=0, kind="forward") == 4


def test_streams_faults_deal_out_what_their_names_say():
    """The transposing faults number the samples in the other order, slot by slot."""
    value = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    with faults.inject("device-iterations-transposed"):
        transposed = faults.apply("streams.split", value)
    with faults.inject("accumulation-and-replicas-transposed"):
        inner = faults.apply("streams.split", value)
    with faults.inject("replica-order-swapped"):
        swapped = faults.apply("streams.split", value)

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
    with faults.inject(name):
        actual = faults.apply("reduce.gradients", [np.float32(1), np.float32(2), np.float32(4)], divisor=6)

    assert expected == actual


def test_even_steps_are_updated_under_the_fault_of_odd_steps():
    """The fault that skips odd steps lets even ones through."""
    with faults.inject("update-skipped-on-odd-steps"):
        assert faults.apply("update.step", 2, before=1, step=0) == 2
        assert faults.apply("update.step", 2, before=1, step=1) == 1


def test_truncation_never_moves_away_from_zero():
    """Rounding toward zero gives the largest float16 that is not beyond the exact value."""
    exact = np.concatenate([np.linspace(-3, 3, 1001), [1e9, -1e9, 1e-9]])
    with faults.inject("round-toward-zero"):
        actual = faults.apply("numerics.round", exact, exact=exact)

    assert (np.abs(actual.astype(np.float64)) <= np.abs(exact)).all()
    with np.errstate(over="ignore"):
        further = np.nextafter(actual, np.copysign(np.float16(np.inf), exact.astype(np.float16)))
    assert (np.abs(further.astype(np.float64)) > np.abs(exact)).all()


def test_an_unknown_name_offers_the_nearest_and_the_list():
    """The error names what was given, the nearest fault and all faults."""
    with pytest.raises(FaultError, match="did you mean 'sum-instead-of-mean'") as info:
        faults.get("sum-instead-of-means")
    assert str(info.value).startswith("no fault is named 'sum-instead-of-means';")
    assert all(fault.name in str(info.value) for fault in CORE)


def test_injecting_an_unknown_name_injects_nothing():
    """One unknown name among good ones leaves every fault off."""
    with pytest.raises(FaultError, match="'nonsense'"), faults.inject("ir-drop-op", "nonsense"):
        pass
    assert not faults.active


def test_an_unknown_point_is_refused():
    """A hook site with a misspelt point fails rather than never being wrong."""
    with pytest.raises(FaultError, match=r"no hook point is named 'stream\.split'"):
        faults.apply("stream.split", 1)


def test_the_environment_names_faults():
    """The variable's comma-separated names are on after the explicit call, and only then."""
    environment = {faults.ENVIRONMENT: "ir-drop-op, update-halved"}
    assert faults.activate_from_environment(environment) == ("ir-drop-op", "update-halved")
    assert set(faults.active) == {"ir-drop-op", "update-halved"}


@pytest.mark.parametrize("text", ["", " , "])
def test_an_empty_variable_activates_nothing(text):
    """An unset or empty variable leaves the device right."""
    assert faults.activate_from_environment({faults.ENVIRONMENT: text}) == ()
    assert not faults.active


def test_the_environment_of_the_process_is_the_default(monkeypatch):
    """Without an argument the process's own environment is read; one bad name activates none."""
    monkeypatch.setenv(faults.ENVIRONMENT, "ir-drop-op,nonsense")
    with pytest.raises(FaultError, match="nonsense"):
        faults.activate_from_environment()
    assert not faults.active


def test_front_ends_add_rows_and_points():
    """A registered point and fault are used like the core's and appear in the table."""
    faults.register_point("poptorch.lifecycle", "value: a flag")
    fault = faults.register(
        Fault("flag-inverted", "weights", "poptorch.lifecycle", "the flag is inverted", lambda value, **_: not value)
    )

    with faults.inject("flag-inverted"):
        assert faults.apply("poptorch.lifecycle", True) is False
    assert fault in faults.table()
    with pytest.raises(FaultError, match="registered already"):
        faults.register_point("poptorch.lifecycle", "again")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Not_Kebab"}, "kebab-case"),
        ({"name": "ir-drop-op"}, "registered already"),
        ({"area": "elsewhere"}, "the areas are plan, streams"),
        ({"point": "nowhere"}, "no hook point is named 'nowhere'"),
    ],
)
def test_a_bad_row_is_refused(change, message):
    """A row needs a new kebab-case name, a known area and a known point."""
    good = Fault("brand-new", "ir", "ir.graph", "nothing", lambda value, **_: value)
    with pytest.raises(FaultError, match=message):
        faults.register(replace(good, **change))


def test_the_table_says_what_each_fault_does():
    """Names are unique and every row has a sentence of its own."""
    assert len({fault.name for fault in CORE}) == len({fault.what for fault in CORE}) == len(CORE)
    assert all(fault.what for fault in CORE)
