"""A set of option values: named, typed by their defaults, checked when they are set, and frozen once in use."""

from __future__ import annotations

import copy
from typing import Any, Callable, ClassVar, Dict, Mapping, NamedTuple, Tuple, TypeVar

from ipu_conformance.emulator.poptorch.refusals import options as refusals

Chain = TypeVar("Chain", bound="OptionValues")


class Rule(NamedTuple):
    """What an option may be: a test of the value, and the words for it."""

    holds: Callable[[Any], bool]
    words: str


class Value(NamedTuple):
    """A row of the table of options: its default, the types it may have, and a rule that it must follow."""

    default: Any
    types: Tuple[type, ...]
    rule: Rule = Rule(lambda value: True, "any value")


AT_LEAST_ONE = Rule(lambda value: value >= 1, "1 or more")
NOT_NEGATIVE = Rule(lambda value: value >= 0, "0 or more")


class OptionValues:
    """Values by name; a subclass gives the table and the methods that set them.

    An unknown name, a type that the table does not list, and a value that breaks its rule are AssertionErrors; any
    change after ``_freeze`` is an AttributeError.
    """

    TABLE: ClassVar[Mapping[str, Value]] = {}

    def __init__(self) -> None:
        self._is_frozen = False
        self._values: Dict[str, Any] = {name: copy.deepcopy(row.default) for name, row in self.TABLE.items()}

    def set(self: Chain, **values: Any) -> Chain:
        """Set values by the names under which they are read back."""
        self._check_not_frozen(", ".join(values))
        for name, value in values.items():
            self._check(name, value)
        self._values.update(values)
        return self

    def toDict(self) -> Dict[str, Any]:
        """The values by name."""
        return copy.deepcopy(self._values)

    def _check(self, name: str, value: Any) -> None:
        refusals.UNKNOWN_OPTION(name=name, known=self.TABLE)
        row = self.TABLE[name]
        refusals.OPTION_TYPE(name=name, value=value, types=row.types)
        refusals.OPTION_VALUE(name=name, value=value, rule=row.rule)

    def _check_not_frozen(self, name: str) -> None:
        refusals.FROZEN(frozen=self._is_frozen, name=name)

    def _freeze(self) -> None:
        object.__setattr__(self, "_is_frozen", True)

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_is_frozen"):
            self._check_not_frozen(name)
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            self.set(**{name: value})

    def __deepcopy__(self: Chain, memo: Dict[int, Any]) -> Chain:
        """A copy that can be changed, whether or not this one still can."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        for name, value in self.__dict__.items():
            object.__setattr__(copied, name, False if name == "_is_frozen" else copy.deepcopy(value, memo))
        return copied

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self._values == other._values

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        changed = {name: value for name, value in self._values.items() if value != self.TABLE[name].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
