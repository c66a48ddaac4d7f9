"""Values of options, drawn by their types."""

from __future__ import annotations

from hypothesis import strategies as st

from ipu_conformance.emulator.paddle.compile.options import BOOL, DOUBLE, OPTIONS, STRING, UINT64

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
