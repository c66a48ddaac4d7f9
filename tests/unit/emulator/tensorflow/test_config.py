"""The tree of IPUConfig holds what is set, refuses the rest, and survives every way of copying it."""

from __future__ import annotations

import copy
import json
import pickle
from enum import Enum
from operator import attrgetter
from typing import Any, Dict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.tensorflow.config.attributes import ATTRIBUTES
from ipu_conformance.emulator.tensorflow.config.ipu_config import IPUConfig, IpuOptions
from ipu_conformance.emulator.tensorflow.config.tree import (
    AttributeTypeError,
    CategoryError,
    Row,
    Table,
    UnknownAttributeError,
)
from tests.unit.examples import at_most

NAMES = [name for name, row in ATTRIBUTES.rows.items() if not row.sets]
TEXTS = st.text(max_size=5)
NUMBERS = st.integers(-(2**40), 2**40)
VALUES: Dict[type, Any] = {
    bool: st.booleans(),
    int: NUMBERS,
    float: st.floats(allow_nan=False),
    str: TEXTS,
    dict: st.dictionaries(TEXTS, TEXTS, max_size=3),
    list: st.lists(NUMBERS, max_size=3),
}


def values(name: str) -> st.SearchStrategy[Any]:
    """Values that an attribute accepts, and that JSON can hold."""
    default = ATTRIBUTES.rows[name].default
    return st.sampled_from(type(default)) if isinstance(default, Enum) else VALUES[type(default)]


ANYTHING = st.one_of(
    st.none(), *VALUES.values(), st.binary(max_size=3), st.lists(st.booleans(), min_size=1, max_size=2)
)
SETTINGS = st.lists(st.sampled_from(NAMES), unique=True, max_size=6).flatmap(
    lambda names: st.fixed_dictionaries({name: values(name) for name in names})
)
"""Some attributes by their full names, each with a value that it accepts."""
FLAT_NAMES = st.sampled_from(NAMES)

FEW = at_most(40)


def write(config: Any, name: str, value: Any) -> None:
    """Set the attribute of that full name."""
    category, _, attribute = name.rpartition(".")
    setattr(attrgetter(category)(config) if category else config, attribute, value)


def configured(chosen: Dict[str, Any]) -> IPUConfig:
    """A configuration with these attributes set."""
    config = IPUConfig()
    for name, value in chosen.items():
        write(config, name, value)
    return config


@FEW
@given(SETTINGS)
def test_what_is_set_is_held(chosen: Dict[str, Any]) -> None:
    """Every attribute holds what it was set to, and the rest their defaults."""
    config = configured(chosen)

    for name in NAMES:
        assert attrgetter(name)(config) == chosen.get(name, ATTRIBUTES.rows[name].default)


@FEW
@given(FLAT_NAMES, ANYTHING)
def test_a_value_is_held_or_refused(name: str, value: Any) -> None:
    """A value of another exact type is refused and changes nothing; any other is held."""
    config, row = IPUConfig(), ATTRIBUTES.rows[name]
    fits = type(value) is type(row.default)
    if row.selection:
        fits = type(value) is int or (type(value) is list and all(type(item) is int for item in value))
    if fits:
        write(config, name, value)
        assert attrgetter(name)(config) == value
    else:
        with pytest.raises(AttributeTypeError, match="must be of type"):
            write(config, name, value)
        assert attrgetter(name)(config) == row.default


@FEW
@given(SETTINGS)
def test_a_copy_is_equal_and_independent(chosen: Dict[str, Any]) -> None:
    """A deep copy and one that went through a pickle are equal; changing a copy leaves the original."""
    config = configured(chosen)
    for copied in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert copied == config
        copied.allow_recompute = not config.allow_recompute
        assert copied != config
        assert attrgetter("allow_recompute")(config) == chosen.get("allow_recompute", False)


@FEW
@given(SETTINGS)
def test_dictionaries_and_json_hold_everything(chosen: Dict[str, Any]) -> None:
    """A configuration that was written and read is the same one."""
    config = configured(chosen)

    assert IPUConfig().from_dict(config.to_dict()) == config
    assert IPUConfig().from_json(config.to_json()) == config
    assert json.loads(config.to_json()) == config.to_dict()


@FEW
@given(SETTINGS, SETTINGS)
def test_reading_sets_what_is_there(first: Dict[str, Any], second: Dict[str, Any]) -> None:
    """Reading a dictionary that leaves names out keeps their values."""
    config = configured(first)
    nested: Dict[str, Any] = {}
    for name, value in second.items():
        *categories, attribute = name.split(".")
        inner = nested
        for category in categories:
            inner = inner.setdefault(category, {})
        inner[attribute] = value
    config.from_dict(nested)

    assert config == configured({**first, **second})


@FEW
@given(st.text(min_size=1, max_size=30), st.sampled_from(["", *sorted(ATTRIBUTES.categories)]))
def test_an_unknown_name_is_a_value_error(name: str, category: str) -> None:
    """Any name that is no attribute is refused, to read and to write, and no other kind of error is raised."""
    part = attrgetter(category)(IPUConfig()) if category else IPUConfig()
    full = f"{category}.{name}" if category else name
    if full in ATTRIBUTES.rows or full in ATTRIBUTES.categories or name.startswith("_") or hasattr(type(part), name):
        return
    with pytest.raises(UnknownAttributeError, match="not a valid attribute"):
        getattr(part, name)
    with pytest.raises(UnknownAttributeError, match="not a valid attribute"):
        setattr(part, name, 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelt_name_is_recognised(name: str) -> None:
    """A name with one letter doubled leads to an attribute that ends like it."""
    category, _, attribute = name.rpartition(".")
    with pytest.raises(UnknownAttributeError) as caught:
        attrgetter(f"{category}.{attribute}{attribute[-1]}" if category else attribute + attribute[-1])(IPUConfig())

    meant = str(caught.value).partition("Did you mean '")[2].rstrip("'?")
    assert meant.rpartition(".")[2] == attribute


def test_a_table_knows_its_categories() -> None:
    """Categories follow from the names of the rows; a second name is not listed."""
    table = Table((Row("a", 1, "."), Row("b.c.d", 2, "."), Row("b.e", 3, "."), Row("b.f", 3, ".", sets="b.e")))

    assert table.categories == {"b", "b.c"}
    assert table.below("") == ["a", "b"]
    assert table.below("b") == ["c", "e"]


@pytest.mark.parametrize("name", sorted(ATTRIBUTES.categories))
def test_categories_are_not_assigned(name: str) -> None:
    """No category can be set, not even to itself."""
    config = IPUConfig()
    with pytest.raises(CategoryError):
        write(config, name, attrgetter(name)(config))


@FEW
@given(SETTINGS)
def test_options_hold_what_the_configuration_said(chosen: Dict[str, Any]) -> None:
    """Options are a picture of a moment: equal for equal configurations, and unchanged by what is set later."""
    chosen = {name: value for name, value in chosen.items() if "select_ipus" not in name and "set_all" not in name}
    config = configured(chosen)
    options = config._create_protobuf()
    same = configured(chosen)._create_protobuf()
    config.compilation_poplar_options["later"] = "yes"
    config.io_tiles.num_io_tiles = -1

    assert options == same
    for name in NAMES:
        assert attrgetter(name)(options) == chosen.get(name, ATTRIBUTES.rows[name].default)
    assert options.to_dict() == configured(chosen).to_dict()


def test_options_cannot_be_set() -> None:
    """Options are read only, whole and in parts."""
    options = IPUConfig()._create_protobuf()
    for part in (options, options.optimizations.math):
        with pytest.raises(AttributeError, match="cannot be set"):
            part.fast = True
    with pytest.raises(AttributeError, match="no_such_attribute"):
        _ = options.no_such_attribute
    assert isinstance(options.optimizations, IpuOptions)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@at_most(3)
def test_metadata_accept_what_the_attribute_accepts(name: str, data: st.DataObject) -> None:
    """The metadata of an attribute tell its row, and check types as setting does."""
    metadata = IPUConfig().get_attribute_metadata(name)
    metadata.check_type(data.draw(values(name)))

    row = ATTRIBUTES.rows[name]
    assert (metadata.name, metadata.default, metadata.__doc__) == (name, row.default, row.doc)
    assert metadata.type.startswith("Union" if row.selection else type(row.default).__name__)


def test_every_row_can_be_written() -> None:
    """Every default is a value that JSON can hold, or a member of an enumeration."""
    for row in ATTRIBUTES.rows.values():
        assert isinstance(row.default, (bool, int, float, str, dict, list, Enum))
        assert row.doc.endswith(".")
