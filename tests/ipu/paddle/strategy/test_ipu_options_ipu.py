"""Options of a strategy: defaults, what is read after setting, and strict types."""

from __future__ import annotations

from typing import Any

import pytest

from . import options_table as table


@pytest.fixture
def strategy(static: Any) -> Any:
    """A new strategy, made in static mode."""
    return static.IpuStrategy()


@pytest.mark.parametrize("name", table.DEFAULTS)
def test_an_option_has_its_default_until_it_is_set(strategy: Any, name: str) -> None:
    """A new strategy gives the specified default, in the option's own type."""
    found = strategy.get_option(name)

    assert (type(found), found) == (type(table.DEFAULTS[name]), table.DEFAULTS[name])


@pytest.mark.parametrize("name", table.DEFAULTS)
def test_an_option_gives_what_was_set_last(strategy: Any, name: str) -> None:
    """Reading gives the value that was set, and the default again after that was set; no other option changes."""
    partners = {"enable_manual_shard": {"virtual_graph_mode"}, "virtual_graph_mode": {"enable_manual_shard"}}
    others = set(table.DEFAULTS) - {name} - partners.get(name, set())
    strategy.set_options({name: table.another(name)})
    found = strategy.get_option(name)
    changed = [other for other in others if strategy.get_option(other) != table.DEFAULTS[other]]
    strategy.set_options({name: table.DEFAULTS[name]})

    assert (type(found), found) == (type(table.another(name)), table.another(name))
    assert changed == []
    assert strategy.get_option(name) == table.DEFAULTS[name]


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in table.DEFAULTS for kind in table.of_other_types(name)]
)
def test_a_value_of_another_type_is_refused(strategy: Any, name: str, kind: str) -> None:
    """bool, int, float and str are four tables: an option is not found in those of the other types, and stays."""
    with pytest.raises(ValueError, match=f"Cannot find option: {name}, type: "):
        strategy.set_options({name: table.of_other_types(name)[kind]})

    assert strategy.get_option(name) == table.DEFAULTS[name]


@pytest.mark.parametrize("name", table.ENUMS)
def test_an_enumeration_has_a_range(strategy: Any, name: str) -> None:
    """A number far beyond an enumeration's values is refused, and the option stays."""
    with pytest.raises(ValueError, match="out of range"):
        strategy.set_options({name: 1000})

    assert strategy.get_option(name) == table.ENUMS[name]


@pytest.mark.parametrize("value", [None, (1, 2), b"2", 1j, object], ids=["None", "tuple", "bytes", "complex", "class"])
def test_a_value_of_no_type_of_options_is_refused(strategy: Any, value: Any) -> None:
    """What is neither bool, int, float, str, list, set nor dict is no value of any option."""
    with pytest.raises(ValueError, match="num_ipus"):
        strategy.set_options({"num_ipus": value})


@pytest.mark.parametrize("value", [True, 1, 0.5, "text", [1], {"a": "b"}], ids=lambda value: type(value).__name__)
def test_an_option_that_does_not_exist_is_refused(strategy: Any, value: Any) -> None:
    """An unknown name is found in no table, whatever the value."""
    with pytest.raises(ValueError, match="Cannot find option: number_of_ipus, type: "):
        strategy.set_options({"number_of_ipus": value})


def test_reading_an_option_that_does_not_exist_is_refused(strategy: Any) -> None:
    """An unknown name has no value."""
    with pytest.raises(ValueError, match="number_of_ipus"):
        strategy.get_option("number_of_ipus")


@pytest.mark.parametrize("value", [-1, -(2**70), 2**64], ids=["minus one", "far below", "too large"])
def test_whole_numbers_have_64_bits_and_no_sign(strategy: Any, value: int) -> None:
    """A number that 64 bits without a sign cannot hold is refused, and the option stays."""
    with pytest.raises((RuntimeError, OverflowError, ValueError)):
        strategy.set_options({"num_ipus": value})

    assert strategy.get_option("num_ipus") == 1


@pytest.mark.parametrize("kind", [list, set])
@pytest.mark.parametrize("name", table.VECTORS)
def test_vectors_grow(strategy: Any, name: str, kind: Any) -> None:
    """A vector is empty at first, and every list or set of texts or numbers that is set adds to it."""
    first, second = (["0"], ["1"]) if name == "hardware_instrumentations" else (["Fwd0"], ["Final"])
    before = strategy.get_option(name)
    strategy.set_options({name: kind(first)})
    strategy.set_options({name: kind(second)})

    assert before == []
    assert sorted(strategy.get_option(name)) == sorted(first + second)


@pytest.mark.parametrize("name", table.MAPS)
def test_maps_grow(strategy: Any, name: str) -> None:
    """A map is empty at first; every dict that is set adds to it, numbers as text."""
    before = strategy.get_option(name)
    strategy.set_options({name: {"first": "text"}})
    strategy.set_options({name: {"second": 7}})

    assert before == {}
    assert strategy.get_option(name) == {"first": "text", "second": "7"}


@pytest.mark.parametrize("name", [*table.VECTORS, *table.MAPS])
def test_entries_are_text_or_numbers(strategy: Any, name: str) -> None:
    """An entry of a vector or a map that is neither text nor a whole number is not implemented."""
    with pytest.raises(NotImplementedError, match=name):
        strategy.set_options({name: [0.5] if name in table.VECTORS else {"key": 0.5}})


@pytest.mark.parametrize("name", table.SET_ONLY)
def test_some_options_can_only_be_set(strategy: Any, name: str) -> None:
    """Tensor locations, fragments, custom ops and the progress logger are accepted, and cannot be read."""
    strategy.set_options({name: table.SET_ONLY[name]})

    with pytest.raises(ValueError, match=name):
        strategy.get_option(name)


def test_manual_sharding_is_a_virtual_graph_mode(strategy: Any) -> None:
    """enable_manual_shard and virtual_graph_mode 1 are the same thing, read and set either way."""
    strategy.set_options({"enable_manual_shard": True})
    as_mode = strategy.get_option("virtual_graph_mode")
    strategy.set_options({"virtual_graph_mode": 0})
    turned_off = strategy.get_option("enable_manual_shard")
    strategy.set_options({"virtual_graph_mode": 1})

    assert (as_mode, turned_off, strategy.get_option("enable_manual_shard")) == (1, False, True)


def test_options_are_set_in_order_up_to_the_first_refusal(strategy: Any) -> None:
    """What stands before a refused option is set, what stands behind it is not."""
    with pytest.raises(ValueError, match="Cannot find option"):
        strategy.set_options({"num_ipus": 4, "batches_per_step": 2.0, "micro_batch_size": 8})

    assert [strategy.get_option(name) for name in ("num_ipus", "batches_per_step", "micro_batch_size")] == [4, 1, 1]


def test_strategies_are_independent(static: Any) -> None:
    """An option of one strategy is not that of another, made before or after."""
    before, own = static.IpuStrategy(), static.IpuStrategy()
    own.set_options({"num_ipus": 4, "engine_options": {"a": "b"}, "dot_checks": ["Final"]})
    after = static.IpuStrategy()

    for other in (before, after):
        assert (other.num_ipus, other.get_option("engine_options"), other.get_option("dot_checks")) == (1, {}, [])
