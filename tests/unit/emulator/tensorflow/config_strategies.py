"""Strategies for attributes of IPUConfig, their values, and whole configurations."""

from __future__ import annotations

from enum import Enum
from typing import Any, Dict

from hypothesis import strategies as st

from ipu_conformance.emulator.tensorflow.config.attributes import ATTRIBUTES

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
