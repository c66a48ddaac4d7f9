"""The machinery of IPUConfig: categories of typed attributes, refused or accepted by one table."""

from __future__ import annotations

import copy
import difflib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ipu_conformance.emulator.tensorflow.refusals import system as refusals
from ipu_conformance.errors import ConformanceError


class UnknownAttributeError(ConformanceError, ValueError):
    """A configuration has no attribute of that name."""


class AttributeTypeError(ConformanceError, TypeError):
    """A value is not of its attribute's type."""


class CategoryError(ConformanceError):
    """A category was assigned to."""


@dataclass(frozen=True)
class Row:
    """One attribute: its full name, its default, what it does and, if it is deprecated, what to use instead."""

    name: str
    default: Any
    doc: str
    deprecated: str = ""
    sets: str = ""
    """The attribute that this deprecated one is another name of."""
    selection: bool = False
    """Whether one whole number, or several in a list or a tuple, may be given."""


class AttributeMetadata:
    """What is known of one attribute: its name, types, default, documentation, and whether it is deprecated."""

    def __init__(
        self,
        name: str,
        doc: str = "",
        depth: int = 0,
        default: Any = None,
        deprecated_msg: Optional[str] = None,
        attr_type: Any = None,
        attr_type_str: Optional[str] = None,
        check_type_fn: Optional[Callable[[Any], bool]] = None,
    ) -> None:
        self._name, self.__doc__, self._depth = name, doc, depth
        self._default = copy.deepcopy(default)
        self._deprecated_msg = deprecated_msg
        self._type = type(default) if attr_type is None else attr_type
        self._type_name = attr_type_str or self._type.__name__
        self._fits = check_type_fn or (lambda value: type(value) is self._type)

    @classmethod
    def of(cls, row: Row) -> AttributeMetadata:
        """What a row says; a selection is a whole number or several of them."""
        chosen = (Union[int, List[int], Tuple[int, ...]], _SELECTION, _is_selection) if row.selection else ()
        return cls(row.name, row.doc, row.name.count("."), row.default, row.deprecated or None, *chosen)

    @property
    def name(self) -> str:
        """The full name."""
        return self._name

    @property
    def default(self) -> Any:
        """What the attribute is where nobody sets it."""
        return self._default

    @property
    def deprecated(self) -> bool:
        """Whether another attribute is to be used."""
        return self._deprecated_msg is not None

    @property
    def deprecated_msg(self) -> Optional[str]:
        """What to use instead."""
        return self._deprecated_msg

    @property
    def actual_type(self) -> Any:
        """The type itself."""
        return self._type

    @property
    def type(self) -> str:
        """The type in words."""
        return self._type_name

    def accepts(self, value: Any) -> bool:
        """Whether a value is of the exact type; a bool is not an int, and an int is not a float."""
        return self._fits(value)

    def check_type(self, value: Any) -> None:
        """Refuse a value of another type."""
        refusals.ATTRIBUTE_TYPE(attribute=self, value=value)

    def warn_if_deprecated(self) -> None:
        """Log what to use instead of a deprecated attribute."""
        if self.deprecated:
            from tensorflow.python.platform import tf_logging

            tf_logging.warning("%s is deprecated: %s", self.name, self.deprecated_msg)

    def __repr__(self) -> str:
        return f"AttributeMetadata(name={self.name!r}, type={self.type!r}, default={self.default!r})"


_SELECTION = "Union[int, List[int], Tuple[int, ...]]"


def _is_selection(value: Any) -> bool:
    return type(value) is int or (type(value) in (list, tuple) and all(type(item) is int for item in value))


class Table:
    """The rows of a configuration by their full names, and the categories that these imply."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows: Dict[str, Row] = {row.name: row for row in rows}
        self.categories = {
            ".".join(parts[:length])
            for parts in (name.split(".") for name in self.rows)
            for length in range(1, len(parts))
        }

    def below(self, prefix: str) -> List[str]:
        """The attributes and categories directly in a category, in the order of the rows; no second names."""
        start = f"{prefix}." if prefix else ""
        names = [
            name[len(start) :].split(".")[0]
            for name, row in self.rows.items()
            if name.startswith(start) and not row.sets
        ]
        return list(dict.fromkeys(names))

    def nearest(self, name: str) -> Optional[str]:
        """The name of the table that is most like another; its last part counts more than the whole."""
        known = [*self.rows, *sorted(self.categories)]
        by_leaf = {_leaf(full): full for full in reversed(known)}
        near = difflib.get_close_matches(_leaf(name), by_leaf, n=1)
        return by_leaf[near[0]] if near else next(iter(difflib.get_close_matches(name, known, n=1)), None)


def _leaf(name: str) -> str:
    return name.rsplit(".", 1)[-1]


class Category:
    """A part of a configuration: attributes are read and set by name, and any other name is an error."""

    def __init__(self, table: Table, prefix: str, values: Dict[str, Any]) -> None:
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_prefix", prefix)
        object.__setattr__(self, "_values", values)

    def _full(self, name: str) -> str:
        return f"{self._prefix}.{name}" if self._prefix else name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python itself asks for these, to copy or to inspect
            raise AttributeError(name)
        full = self._full(name)
        if full in self._table.categories:
            return Category(self._table, full, self._values)
        refusals.UNKNOWN_ATTRIBUTE(name=full, table=self._table)
        return self._values[self._table.rows[full].sets or full]

    def __setattr__(self, name: str, value: Any) -> None:
        full = self._full(name)
        refusals.CATEGORY(name=full, categories=self._table.categories)
        refusals.UNKNOWN_ATTRIBUTE(name=full, table=self._table)
        row = self._table.rows[full]
        metadata = AttributeMetadata.of(row)
        metadata.check_type(value)
        metadata.warn_if_deprecated()
        self._store(row, value)

    def _store(self, row: Row, value: Any) -> None:
        self._values[row.sets or row.name] = _copied(value)

    def __dir__(self) -> List[str]:
        return sorted({*object.__dir__(self), *self._table.below(self._prefix)})

    def __repr__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> Iterator[str]:
        for name in self._table.below(self._prefix):
            value = getattr(self, name)
            if isinstance(value, Category):
                yield f"{'  ' * depth}{name}:"
                yield from value._lines(depth + 1)
            else:
                yield f"{'  ' * depth}{name} = {value}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Category) and self._own() == other._own()

    __hash__ = None  # type: ignore[assignment]

    def _own(self) -> Dict[str, Any]:
        start = self._full("")
        return {name: value for name, value in self._values.items() if name.startswith(start)}

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """What is known of an attribute, named from here on: ``optimizations.math.fast``."""
        full = self._full(attr)
        refusals.UNKNOWN_ATTRIBUTE(name=full, table=self._table)
        return AttributeMetadata.of(self._table.rows[full])

    def to_dict(self) -> Dict[str, Any]:
        """The values as a nested dictionary; members of enumerations by their names."""
        result: Dict[str, Any] = {}
        for name in self._table.below(self._prefix):
            value = getattr(self, name)
            result[name] = value.to_dict() if isinstance(value, Category) else _plain(value)
        return result

    def from_dict(self, dct: Mapping[str, Any]) -> Category:
        """Set what a nested dictionary holds; what it leaves out keeps its value."""
        if not isinstance(dct, Mapping):
            raise AttributeTypeError(f"A configuration cannot be restored from {dct!r}; give a dictionary.")
        for name, value in dct.items():
            full = self._full(str(name))
            if full in self._table.categories:
                getattr(self, name).from_dict(value)
            else:
                refusals.UNKNOWN_ATTRIBUTE(name=full, table=self._table)
                setattr(self, name, _member(self._table.rows[full].default, value))
        return self

    def to_json(self) -> str:
        """The values as JSON."""
        return json.dumps(self.to_dict())

    def from_json(self, json_cfg: str) -> Category:
        """Set what a JSON object holds, as ``to_json`` writes it."""
        return self.from_dict(json.loads(json_cfg))


class Root(Category):
    """A whole configuration with values of its own."""

    TABLE: Table

    def __init__(self) -> None:
        super().__init__(self.TABLE, "", _defaults(self.TABLE))

    def __deepcopy__(self, memo: Dict[int, Any]) -> Root:
        made = type(self)()
        made._values.update(copy.deepcopy(self._values, memo))
        return made


def _defaults(table: Table) -> Dict[str, Any]:
    return {name: _copied(row.default) for name, row in table.rows.items() if not row.sets}


def _copied(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, (dict, list)) else value


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, Enum) else _copied(value)


def _member(default: Any, value: Any) -> Any:
    """The member of an enumeration that a name stands for; anything else as it is, to be checked when it is set."""
    if isinstance(default, Enum) and isinstance(value, str) and value in type(default).__members__:
        return type(default)[value]
    return value


def resolved(config: Root, changes: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """The values by full names, with ``changes`` in their places."""
    return {**copy.deepcopy(config._values), **(changes or {})}
