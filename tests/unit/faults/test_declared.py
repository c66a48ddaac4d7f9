"""Slips of what is declared: a wrong value, a missing name, another default, no warning, and all right again."""

from __future__ import annotations

import inspect
import logging
import sys
import types
import warnings

import pytest

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import declared, slips

SOURCE = """
import collections, contextlib, dataclasses, enum, logging, warnings
__all__ = ["Kind", "scaled", "LIMIT"]
LIMIT = 3
NOTHING = None

class Kind(enum.Enum):
    FIRST = "first"
    SECOND = "second"
    THIRD = "third"

class Holder:
    size = 5
    def grow(self, by=2, other=None):
        return self.size + by

@dataclasses.dataclass
class Pair:
    left: int
    right: object = None

class Sorted(collections.UserList):
    def sort(self):
        self.data = sorted(self.data)

def checked(value):
    if value < 0:
        raise ValueError(value)
    return value

@contextlib.contextmanager
def positive(value):
    yield checked(value)

def made():
    def __init__(self, count):
        self.count = checked(count)
    return __init__

class First:
    __init__ = made()

class Second:
    __init__ = made()

def scaled(value, factor=4, name=None):
    return value * factor

def deprecated():
    warnings.warn("no more", DeprecationWarning)
    logging.getLogger("example").warning("no more")
    return 7
"""
NAME = "core.example"


def _raised(function, *arguments):
    """The type of the error that a call raises, None if it raises none."""
    try:
        function(*arguments)
    except ValueError as error:
        return type(error)


def _entered(scope):
    """What a scope gives."""
    with scope as value:
        return value


@pytest.fixture
def example(monkeypatch):
    """A module of the emulator's core."""
    module = types.ModuleType(f"ipu_conformance.emulator.{NAME}")
    module.__file__ = "example.py"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(SOURCE, "example.py", "exec"), vars(module))
    monkeypatch.setattr(sys.modules["ipu_conformance.emulator.core"], "example", module, raising=False)
    return module


@pytest.mark.parametrize(
    ("place", "read", "right", "wrong"),
    [
        ("LIMIT", lambda module: module.LIMIT, 3, 4),
        ("Holder.size", lambda module: module.Holder().size, 5, 6),
        ("Kind.SECOND", lambda module: module.Kind.SECOND.value, "second", "second-"),
        ("-LIMIT", lambda module: (hasattr(module, "LIMIT"), "LIMIT" in module.__all__), (True, True), (False, False)),
        (
            "-Kind.SECOND",
            lambda module: list(module.Kind.__members__),
            ["FIRST", "SECOND", "THIRD"],
            ["FIRST", "THIRD"],
        ),
        ("scaled(factor)", lambda module: module.scaled(3), 12, 15),
        ("scaled(factor)", lambda module: module.scaled(3, 4), 12, 12),
        (
            "scaled(factor)",
            lambda module: str(inspect.signature(module.scaled)),
            *(f"(value, factor={factor}, name=None)" for factor in (4, 5)),
        ),
        ("Holder.grow(by)", lambda module: module.Holder().grow(), 7, 8),
        ("scaled(factor=)", lambda module: (module.scaled(3), module.scaled(3, 6)), (12, 18), (15, 21)),
        (
            "Pair.__init__(right=)",
            lambda module: vars(module.Pair(2, 5)),
            {"left": 2, "right": 5},
            {"left": 2, "right": 6},
        ),
        ("Sorted.count", lambda module: module.Sorted([4, 7, 4]).count(4), 2, 3),
        ("checked?", lambda module: _raised(module.checked, -1), ValueError, None),
        ("checked?", lambda module: module.checked(2), 2, 2),
        ("positive?", lambda module: _raised(_entered, module.positive(-1)), ValueError, None),
        ("positive?", lambda module: _entered(module.positive(2)), 2, 2),
        ("scaled#2", lambda module: [module.scaled(number) for number in (1, 2, 3)], [4, 8, 12], [4, 9, 13]),
        ("scaled", lambda module: module.scaled(3), 12, 13),
    ],
)
def test_what_is_declared_is_wrong_while_the_slip_is_on(example, place, read, right, wrong):
    """Before and afterwards it is right."""
    assert read(example) == right
    with catalogue.inject(f"slip:{NAME}:{place}"):
        assert read(example) == wrong
    assert read(example) == right


def test_nothing_is_said(example, caplog):
    """Neither a warning nor a line of the log comes, and the result is right."""
    with warnings.catch_warnings(record=True) as said, catalogue.inject(f"slip:{NAME}:deprecated!"):
        warnings.simplefilter("always")
        assert example.deprecated() == 7
    assert (said, caplog.records) == ([], [])
    with pytest.warns(DeprecationWarning, match="no more"):
        example.deprecated()
    assert [record.message for record in caplog.records] == ["no more"]
    assert logging.root.manager.disable == logging.NOTSET


def test_a_function_that_is_called_twice_can_be_wrong_later(example):
    """Its place is noted with the number of the call."""
    noted = []
    with slips.called(noted.append):
        example.scaled(1)
        once = list(noted)
        example.scaled(2)
        example.scaled(3)

    assert (once, noted) == ([f"{NAME}:scaled"], [f"{NAME}:scaled", f"{NAME}:scaled#2"])


def test_modules_without_a_file_are_passed_over(example, monkeypatch):
    """Some are made while the program runs, and what they hold was written elsewhere."""
    made = types.ModuleType(f"{slips._EMULATOR}.core.made")
    vars(made).update(scaled=example.scaled, Holder=example.Holder)
    monkeypatch.setitem(sys.modules, made.__name__, made)
    noted = []
    with slips.called(noted.append):
        vars(made)["scaled"](1)

    assert noted == [f"{NAME}:scaled"]
    assert not [place for place in declared.places("core") if place.startswith("core.made:")]


def test_who_raises_is_noted(example):
    """Only where an error comes."""
    noted = []
    with slips.called(noted.append):
        example.checked(1)
        quiet = list(noted)
        _raised(example.checked, -1)

    assert (quiet, noted) == ([f"{NAME}:checked"], [f"{NAME}:checked", f"{NAME}:checked?"])


def test_who_warns_is_noted(example):
    """Beside the place of its result."""
    noted = set()
    with slips.called(noted.add), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example.deprecated()

    assert {f"{NAME}:deprecated", f"{NAME}:deprecated!"} <= noted


def test_arguments_of_constructors_are_noted(example):
    """Those that can be wrong."""
    noted = set()
    with slips.called(noted.add):
        example.Pair(3, None)

    assert f"{NAME}:Pair.__init__(left=)" in noted
    assert f"{NAME}:Pair.__init__(right=)" not in noted


def test_a_constructor_of_several_classes_has_several_places(example):
    """They share its code, and the device may be wrong in one of them."""
    noted = set()
    with slips.called(noted.add):
        _raised(example.First, -1)

    assert {f"{NAME}:{kind}.__init__{form}" for kind in ("First", "Second") for form in ("?", "(count=)")} <= noted


def test_every_declaration_has_its_slips(example):
    """Names of the interface, members, constants, attributes of classes and defaults; None has no wrong value."""
    places = [place for place in declared.places("core") if place.startswith(NAME)]

    members = [f"{sign}Kind.{name}" for name in ("FIRST", "SECOND", "THIRD") for sign in ("-", "")]
    expected = {"-Kind", "-scaled", "-LIMIT", "LIMIT", *members, "Holder.size", "Holder.grow(by)", "scaled(factor)"}
    inherited = {place for place in places if place.startswith(f"{NAME}:Sorted.")}
    assert sorted(set(places) - inherited) == sorted(f"{NAME}:{path}" for path in expected)
    assert f"{NAME}:Sorted.count" in inherited
    assert f"{NAME}:Sorted.sort" not in inherited
