"""``strategy.Strategy`` stores what is set, type by type; no Paddle is imported."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_conformance.emulator.paddle.api.strategy import IpuStrategy
from ipu_conformance.emulator.paddle.compile.options import BOOL, DOUBLE, MAP, OPTIONS, SET_ONLY, STRING, UINT64, VECTOR
from ipu_conformance.emulator.paddle.compile.strategy_options import CustomOpMapping, option_value
from ipu_conformance.emulator.paddle.errors import InvalidArgument, UncastableError, Unimplemented
from ipu_conformance.errors import ConformanceError
from tests.unit.examples import at_most

TYPES = {BOOL: bool, UINT64: int, DOUBLE: float, STRING: str, VECTOR: tuple, MAP: dict}
SCALARS = tuple(name for name, option in OPTIONS.items() if option.type in (BOOL, UINT64, DOUBLE, STRING))
TEXTS = st.text(max_size=8)
ENTRIES = st.one_of(TEXTS, st.integers(0, 2**64 - 1))


def value_of(name: str) -> st.SearchStrategy:
    """Any value that the option takes."""
    option = OPTIONS[name]
    if option.members:
        return st.integers(0, len(option.members) - 1)
    return {
        BOOL: st.booleans(),
        UINT64: st.integers(0, 2**64 - 1),
        DOUBLE: st.floats(allow_nan=False),
        STRING: TEXTS,
    }[option.type]


def set_options() -> st.SearchStrategy:
    """A dict of scalar options with values that they take, free of those that are other options in disguise."""
    disguised = {"enable_manual_shard", "enable_half_partial", "virtual_graph_mode", "partials_type_matmuls"}
    names = st.lists(st.sampled_from([name for name in SCALARS if name not in disguised]), unique=True, max_size=8)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: value_of(name) for name in chosen}))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_default_is_of_the_options_type(name: str) -> None:
    """Every row of the table has a default that could have been set."""
    option = OPTIONS[name]

    assert type(option.default) is TYPES[option.type]
    if option.members:
        assert option.default in range(len(option.members))


def test_nothing_that_can_be_read_can_only_be_set() -> None:
    """The two tables have no name in common."""
    assert not set(SET_ONLY) & set(OPTIONS)
    assert IpuStrategy().get_all_option_names() == sorted(OPTIONS)


@at_most(60)
@given(set_options())
def test_what_is_set_is_read(options: Dict[str, Any]) -> None:
    """Each option reads as it was set, in its type and with six decimals; all others keep their defaults."""
    strategy = IpuStrategy()
    strategy.set_options(options)

    for name in SCALARS:
        expected = options.get(name, OPTIONS[name].default)
        found = strategy.get_option(name)
        assert (found["name"], found["type"]) == (name, OPTIONS[name].type)
        read = float(f"{expected:.6f}") if isinstance(expected, float) else expected
        assert (type(found["value"]), found["value"]) == (type(expected), read)
        assert strategy.value(name) == expected


@at_most(60)
@given(set_options(), set_options())
def test_the_last_value_counts(first: Dict[str, Any], second: Dict[str, Any]) -> None:
    """Setting twice is setting the merged options once."""
    twice, once = IpuStrategy(), IpuStrategy()
    twice.set_options(first)
    twice.set_options(second)
    once.set_options({**first, **second})

    assert [twice.value(name) for name in OPTIONS] == [once.value(name) for name in OPTIONS]


@pytest.mark.parametrize(
    ("value", "kind"), [(True, BOOL), (1, UINT64), (0.5, DOUBLE), ("a", STRING), (["a"], VECTOR), ({"a": "b"}, MAP)]
)
def test_the_error_names_the_table_that_was_searched(value: Any, kind: str) -> None:
    """The type in the message is that of the value, as the core calls it."""
    with pytest.raises(InvalidArgument) as caught:
        IpuStrategy().set_options({"no_such_option": value})

    assert str(caught.value) == (
        f"(InvalidArgument) Cannot find option: no_such_option, type: {kind} when setting IpuStrategy options"
    )
    assert isinstance(caught.value, (ValueError, ConformanceError))


@pytest.mark.parametrize(("value", "expected"), [(np.float64(0.5), 0.5), (np.str_("x"), "x")])
def test_numpy_values_that_are_python_values_are_stored_as_those(value: Any, expected: Any) -> None:
    """np.float64 is a float and np.str_ a str; what is stored is Python's own."""
    name = "lr" if isinstance(expected, float) else "log_dir"
    strategy = IpuStrategy()
    strategy.set_options({name: value})

    assert (type(strategy.value(name)), strategy.value(name)) == (type(expected), expected)


@pytest.mark.parametrize(
    "value", [np.int64(2), np.float32(0.5), np.bool_(True)], ids=lambda value: type(value).__name__
)
def test_other_numpy_values_are_no_values(value: Any) -> None:
    """NumPy's numbers that are no Python numbers are refused."""
    with pytest.raises(InvalidArgument, match="Invalid IpuStrategy option value type"):
        IpuStrategy().set_options({"num_ipus": value})


@at_most(40)
@given(st.lists(st.lists(ENTRIES, max_size=3), max_size=4))
def test_vectors_hold_all_entries(lists: List[List[Any]]) -> None:
    """Checks are held once each in the order in which they came, codelets as often as they came."""
    strategy = IpuStrategy()
    for entries in lists:
        strategy.set_options({"dot_checks": list(dict.fromkeys(entries)), "custom_codelets": entries})
    given_text = [str(entry) for entries in lists for entry in entries]

    assert sorted(set(strategy.value("dot_checks"))) == sorted(set(given_text))
    assert strategy.value("custom_codelets") == given_text


def test_what_is_read_can_be_changed_without_changing_the_strategy() -> None:
    """Vectors and maps are given as copies."""
    strategy = IpuStrategy()
    strategy.set_options({"dot_checks": ["Final"], "engine_options": {"a": "b"}})
    strategy.value("dot_checks").append("Fwd0")
    strategy.get_option("engine_options")["value"]["c"] = "d"

    assert (strategy.value("dot_checks"), strategy.value("engine_options")) == (["Final"], {"a": "b"})


@pytest.mark.parametrize("entry", [0.5, None, ["a"]])
def test_an_entry_of_a_wrong_type_is_not_implemented(entry: Any) -> None:
    """Entries are text or whole numbers."""
    with pytest.raises(Unimplemented, match="Failed to convert type"):
        IpuStrategy().set_options({"engine_options": {"a": entry}})


@pytest.mark.parametrize(("value", "partials"), [(True, "half"), (False, "float")])
def test_half_partials_are_those_of_products_and_convolutions(value: bool, partials: str) -> None:
    """enable_half_partial sets both, and reads as what products have."""
    strategy = IpuStrategy()
    strategy.set_options({"enable_half_partial": value})

    assert strategy.value("partials_type_matmuls") == partials
    assert strategy.value("convolution_options") == {"partialsType": partials}
    assert strategy.value("enable_half_partial") is value


def test_a_scalar_is_given_as_text_too() -> None:
    """The core's text of a value: flags as digits, fractions with six."""
    strategy = IpuStrategy()
    strategy.set_options({"lr": 0.5, "num_ipus": 4, "is_training": False, "log_dir": "here"})
    texts = {name: strategy.get_option(name)["value_s"] for name in ("lr", "num_ipus", "is_training", "log_dir")}

    assert texts == {"lr": "0.500000", "num_ipus": "4", "is_training": "0", "log_dir": "here"}


def test_custom_ops_are_kept_in_order() -> None:
    """Each custom op is a row; what is left out is empty, and the version -1."""
    strategy = IpuStrategy()
    strategy.set_options({"custom_op": {"paddle_op": "a", "popart_op": "b", "domain": "c", "version": 3}})
    strategy.set_options({"custom_op": {"paddle_op": "d"}})

    assert strategy.custom_ops == [CustomOpMapping("a", "b", "c", 3), CustomOpMapping("d", "", "", -1)]


def test_locations_and_fragments_are_kept() -> None:
    """What can only be set is there for the compiler."""
    strategy = IpuStrategy()
    strategy.set_options({"location_weight": {"on_chip": 0}, "accumulate_outer_fragment": {3: [0, 2]}})
    strategy.set_options({"location_weight": {"use_replicated_tensor_sharding": 1}})

    assert strategy.places == {"location_weight": {"on_chip": 0, "use_replicated_tensor_sharding": 1}}
    assert strategy.outer_fragment == (3, (0, 2))


@pytest.mark.parametrize("options", [{3: 1}, {"num_ipus": -1}, {"compilation_progress_logger": 3}], ids=str)
def test_what_cannot_be_cast_is_a_runtime_error(options: Any) -> None:
    """The binding's own refusals are RuntimeErrors."""
    with pytest.raises(UncastableError, match="Unable to cast"):
        IpuStrategy().set_options(options)
    assert issubclass(UncastableError, RuntimeError)


@pytest.mark.parametrize("options", [None, [("num_ipus", 1)], "num_ipus"])
def test_options_are_a_dict(options: Any) -> None:
    """Nothing else is taken for options."""
    with pytest.raises(TypeError, match="dict"):
        IpuStrategy().set_options(options)


def test_patterns_need_names() -> None:
    """A pattern that is not text is refused; one that was never named is off."""
    strategy = IpuStrategy()
    with pytest.raises(TypeError, match="pattern"):
        strategy.enable_pattern(3)  # type: ignore[arg-type]

    assert (strategy.is_pattern_enabled("MyOwnPattern"), strategy.is_pattern_enabled("InPlace")) == (False, True)


def test_a_seed_is_unset_until_it_is_set() -> None:
    """The largest number of 64 bits stands for no seed."""
    strategy = IpuStrategy()
    before = strategy.seed, strategy.value("random_seed")
    strategy.set_options({"random_seed": 0})

    assert before == (None, 2**64 - 1)
    assert strategy.seed == 0


@pytest.mark.parametrize(
    ("name", "member", "number"), [("virtual_graph_mode", "Manual", 1), ("auto_recomputation", "Pipeline", 3)]
)
def test_members_have_numbers(name: str, member: str, number: int) -> None:
    """An enumeration's members are numbered from 0."""
    assert option_value(name, member) == number


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.members])
def test_an_enumeration_ends_at_its_last_member(name: str) -> None:
    """The last member is accepted, the number after it refused with all that is allowed."""
    members = OPTIONS[name].members
    strategy = IpuStrategy()
    strategy.set_options({name: len(members) - 1})
    with pytest.raises(InvalidArgument, match="out of range") as caught:
        strategy.set_options({name: len(members)})

    assert strategy.value(name) == len(members) - 1
    assert all(member in str(caught.value) for member in members)
