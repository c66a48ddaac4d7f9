"""Options of a strategy: defaults, what is read after setting, and strict types."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest

from ipu_conformance import check

from . import options_table as table


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


MISSING = "Cannot find option: {}, type: "
ANY: List[Any] = [True, 1, 0.5, "text", [1], {"a": "b"}]
REFUSED = [
    # bool, int, float and str are four tables: an option is not found in those of the other types.
    *(
        pytest.param(name, value, ValueError, MISSING.format(name), id=f"{name}-{kind}")
        for name in table.DEFAULTS for kind, value in table.of_other_types(name).items()
    ),
    *(
        pytest.param("number_of_ipus", value, ValueError, MISSING.format("number_of_ipus"), id=type(value).__name__)
        for value in ANY
    ),
    *(pytest.param(name, 1000, ValueError, "out of range", id=name) for name in table.ENUMS),
    # A value is bool, int, float, str, list, set or dict, and a whole number has 64 bits and no sign.
    *(
        pytest.param("num_ipus", value, ValueError, "num_ipus", id=f"num_ipus-{kind}")
        for kind, value in (("None", None), ("tuple", (1, 2)), ("bytes", b"2"), ("complex", 1j), ("class", object))
    ),
    *(
        pytest.param("num_ipus", value, (RuntimeError, OverflowError, ValueError), "", id=size)
        for size, value in (("minus one", -1), ("far below", -(2**70)), ("too large", 2**64))
    ),
    # An entry of a vector or a map is text or a whole number.
    *(pytest.param(name, [0.5], NotImplementedError, name, id=name) for name in table.VECTORS),
    *(pytest.param(name, {"key": 0.5}, NotImplementedError, name, id=name) for name in table.MAPS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "error", "match"), REFUSED)
def test_a_value_of_another_type_is_refused(strategy: Any, name: str, value: Any, error: Any, match: str) -> None:
    """A value of another type, or beyond the range, and an option that does not exist are refused; the option stays."""
    with check.raises(error, match=match, what=f"{name} {value!r}"):
        strategy.set_options({name: value})

    if name in table.DEFAULTS:
        check_option(strategy, name, table.DEFAULTS[name])


GROWING: Dict[str, Tuple[str, Any, Any, Any, Any]] = {
    **{
        f"{name}-{kind.__name__}": (name, kind(first), kind(second), [], sorted(first + second))
        for name in table.VECTORS for kind in (list, set)
        for first, second in [(["0"], ["1"]) if name == "hardware_instrumentations" else (["Fwd0"], ["Final"])]
    },
    **{name: (name, {"first": "text"}, {"second": 7}, {}, {"first": "text", "second": "7"}) for name in table.MAPS},
}  # fmt: skip


@pytest.mark.parametrize(("name", "first", "second", "before", "after"), GROWING.values(), ids=list(GROWING))
def test_vectors_and_maps_grow(strategy: Any, name: str, first: Any, second: Any, before: Any, after: Any) -> None:
    """What is set adds to a vector or a map, which is empty at first; a map holds numbers as text."""
    empty = strategy.get_option(name)
    strategy.set_options({name: first})
    strategy.set_options({name: second})

    grown = strategy.get_option(name)
    values = empty, sorted(grown) if name in table.VECTORS else grown
    check.equal(actual=values, expected=(before, after), what=f"{name} before and after two settings")


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


@pytest.mark.parametrize("name", [*table.SET_ONLY, "number_of_ipus"])
def test_some_options_can_only_be_set(strategy: Any, name: str) -> None:
    """Tensor locations, fragments, custom ops and the progress logger are accepted; no unknown name can be read."""
    if name in table.SET_ONLY:
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
