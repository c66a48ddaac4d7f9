"""Options of a strategy: defaults, what is read after setting, and strict types."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from . import options_table as table


@pytest.fixture
def strategy(static: Any) -> Any:
    """A new strategy, made in static mode."""
    return static.IpuStrategy()


def check_option(strategy: Any, name: str, expected: Any) -> None:
    """An option has a value, in the type of that value."""
    __tracebackhide__ = True
    value = strategy.get_option(name)
    check.equal(actual=(type(value), value), expected=(type(expected), expected), what=f"the type and value of {name}")


@pytest.mark.parametrize("name", table.DEFAULTS)
def test_an_option_has_its_default_until_it_is_set(strategy: Any, name: str) -> None:
    """A new strategy gives the specified default, in the option's own type."""
    check_option(strategy, name, table.DEFAULTS[name])


@pytest.mark.parametrize("name", table.DEFAULTS)
def test_an_option_gives_what_was_set_last(strategy: Any, name: str) -> None:
    """Reading gives the value that was set, and the default again after that was set; no other option changes."""
    partners = {"enable_manual_shard": {"virtual_graph_mode"}, "virtual_graph_mode": {"enable_manual_shard"}}
    others = set(table.DEFAULTS) - {name} - partners.get(name, set())

    strategy.set_options({name: table.another(name)})
    check_option(strategy, name, table.another(name))
    for other in others:
        check_option(strategy, other, table.DEFAULTS[other])
    strategy.set_options({name: table.DEFAULTS[name]})
    check_option(strategy, name, table.DEFAULTS[name])


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in table.DEFAULTS for kind in table.of_other_types(name)]
)
def test_a_value_of_another_type_is_refused(strategy: Any, name: str, kind: str) -> None:
    """bool, int, float and str are four tables: an option is not found in those of the other types, and stays."""
    with check.raises(ValueError, match=f"Cannot find option: {name}, type: ", what=f"a value of type {kind}"):
        strategy.set_options({name: table.of_other_types(name)[kind]})

    check_option(strategy, name, table.DEFAULTS[name])


@pytest.mark.parametrize("name", table.ENUMS)
def test_an_enumeration_has_a_range(strategy: Any, name: str) -> None:
    """A number far beyond an enumeration's values is refused, and the option stays."""
    with check.raises(ValueError, match="out of range", what=f"{name} 1000"):
        strategy.set_options({name: 1000})

    check_option(strategy, name, table.ENUMS[name])


@pytest.mark.parametrize("value", [None, (1, 2), b"2", 1j, object], ids=["None", "tuple", "bytes", "complex", "class"])
def test_a_value_of_no_type_of_options_is_refused(strategy: Any, value: Any) -> None:
    """A value that is neither bool, int, float, str, list, set nor dict is refused."""
    with check.raises(ValueError, match="num_ipus", what=f"num_ipus {value!r}"):
        strategy.set_options({"num_ipus": value})


@pytest.mark.parametrize("value", [True, 1, 0.5, "text", [1], {"a": "b"}], ids=lambda value: type(value).__name__)
def test_an_option_that_does_not_exist_is_refused(strategy: Any, value: Any) -> None:
    """An unknown name is found in no table, whatever the value."""
    match = "Cannot find option: number_of_ipus, type: "
    with check.raises(ValueError, match=match, what=f"an unknown option with the value {value!r}"):
        strategy.set_options({"number_of_ipus": value})


def test_reading_an_option_that_does_not_exist_is_refused(strategy: Any) -> None:
    """An unknown name has no value."""
    with check.raises(ValueError, match="number_of_ipus", what="reading an unknown option"):
        strategy.get_option("number_of_ipus")


@pytest.mark.parametrize("value", [-1, -(2**70), 2**64], ids=["minus one", "far below", "too large"])
def test_whole_numbers_have_64_bits_and_no_sign(strategy: Any, value: int) -> None:
    """A number that 64 bits without a sign cannot hold is refused, and the option stays."""
    with check.raises((RuntimeError, OverflowError, ValueError), match="", what=f"num_ipus {value}"):
        strategy.set_options({"num_ipus": value})

    check_option(strategy, "num_ipus", 1)


@pytest.mark.parametrize("kind", [list, set])
@pytest.mark.parametrize("name", table.VECTORS)
def test_vectors_grow(strategy: Any, name: str, kind: Any) -> None:
    """A vector is empty at first, and every list or set of texts or numbers that is set adds to it."""
    first, second = (["0"], ["1"]) if name == "hardware_instrumentations" else (["Fwd0"], ["Final"])
    before = strategy.get_option(name)
    strategy.set_options({name: kind(first)})
    strategy.set_options({name: kind(second)})

    values = before, sorted(strategy.get_option(name))
    check.equal(actual=values, expected=([], sorted(first + second)), what=f"{name} before and after two settings")


@pytest.mark.parametrize("name", table.MAPS)
def test_maps_grow(strategy: Any, name: str) -> None:
    """A map is empty at first; every dict that is set adds to it, numbers as text."""
    before = strategy.get_option(name)
    strategy.set_options({name: {"first": "text"}})
    strategy.set_options({name: {"second": 7}})

    values, expected = (before, strategy.get_option(name)), ({}, {"first": "text", "second": "7"})
    check.equal(actual=values, expected=expected, what=f"{name} before and after two settings")


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("name", "first", "second", "expected"),
    [
        ("engine_options", {"b": "first", "a": 3}, {"b": "second", "c": 5}, {"a": "3", "b": "first", "c": "5"}),
        ("dot_checks", ["PreAlias", "Final"], ["Bwd0", "Final"], ["Bwd0", "Final", "PreAlias"]),
        ("loss_scaling", 3.0, 0.123456789, 0.123457),
        ("automatic_loss_scaling_settings.threshold_upper_count_proportion", 0.5, 1e-7, 0.0),
    ],
    ids=["map", "set", "six decimals", "below six decimals"],
)
def test_what_is_read_is_what_an_ipu_build_keeps(
    strategy: Any, name: str, first: Any, second: Any, expected: Any
) -> None:
    """A map keeps the first of two entries, a set is in order, and a number is read from text with six decimals."""
    strategy.set_options({name: first})
    strategy.set_options({name: second})

    check_option(strategy, name, expected)


@pytest.mark.emulator
def test_custom_ops_are_read_as_text(strategy: Any) -> None:
    """Every custom op that was added is read in the order of adding, and the list cannot be set."""
    strategy.add_custom_op("first", "First", "domain.one", 3)
    strategy.add_custom_op("second", "Second", "domain.two", 5)
    with check.raises(ValueError, match="Cannot find option: custom_ops, type: ", what="setting custom_ops"):
        strategy.set_options({"custom_ops": ["third"]})

    texts = [
        f"paddle_op: {name}, domain: domain.{number}, type: {name.title()}, version: {version}"
        for name, number, version in (("first", "one", 3), ("second", "two", 5))
    ]
    check_option(strategy, "custom_ops", texts)


@pytest.mark.parametrize("name", [*table.VECTORS, *table.MAPS])
def test_entries_are_text_or_numbers(strategy: Any, name: str) -> None:
    """An entry of a vector or a map that is neither text nor a whole number is not implemented."""
    with check.raises(NotImplementedError, match=name, what=f"0.5 in {name}"):
        strategy.set_options({name: [0.5] if name in table.VECTORS else {"key": 0.5}})


@pytest.mark.parametrize("name", table.SET_ONLY)
def test_some_options_can_only_be_set(strategy: Any, name: str) -> None:
    """Tensor locations, fragments, custom ops and the progress logger are accepted, and cannot be read."""
    strategy.set_options({name: table.SET_ONLY[name]})

    with check.raises(ValueError, match=name, what=f"reading {name}"):
        strategy.get_option(name)


def test_manual_sharding_is_a_virtual_graph_mode(strategy: Any) -> None:
    """enable_manual_shard and virtual_graph_mode 1 are the same thing, read and set either way."""
    strategy.set_options({"enable_manual_shard": True})
    check_option(strategy, "virtual_graph_mode", 1)
    strategy.set_options({"virtual_graph_mode": 0})
    check_option(strategy, "enable_manual_shard", False)
    strategy.set_options({"virtual_graph_mode": 1})
    check_option(strategy, "enable_manual_shard", True)


def test_options_are_set_in_order_up_to_the_first_refusal(strategy: Any) -> None:
    """Options before a refused one are set, options after it are not."""
    with check.raises(ValueError, match="Cannot find option", what="batches_per_step 2.0"):
        strategy.set_options({"num_ipus": 4, "batches_per_step": 2.0, "micro_batch_size": 8})

    for name, value in {"num_ipus": 4, "batches_per_step": 1, "micro_batch_size": 1}.items():
        check_option(strategy, name, value)


def test_strategies_are_independent(static: Any) -> None:
    """Setting an option of one strategy changes no other strategy, older or newer."""
    before, changed = static.IpuStrategy(), static.IpuStrategy()
    changed.set_options({"num_ipus": 4, "engine_options": {"a": "b"}, "dot_checks": ["Final"]})

    for other in (before, static.IpuStrategy()):
        for name, value in {"num_ipus": 1, "engine_options": {}, "dot_checks": []}.items():
            check_option(other, name, value)
