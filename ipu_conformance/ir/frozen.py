"""An immutable, hashable mapping that keeps the order it was given."""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, Tuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(Mapping[K, V]):
    """A mapping that never changes; it compares equal to any mapping with the same items, and it can be pickled."""

    __slots__ = ("_items",)
    _items: Dict[K, V]

    def __init__(self, items: Mapping[K, V]) -> None:
        object.__setattr__(self, "_items", dict(items))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a FrozenDict has no settable attribute {name!r}; build a new one")

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> Tuple[type, Tuple[Dict[K, V]]]:
        return FrozenDict, (self._items,)
