"""A row of the suite's op table: an op of the oracle, and how each framework is asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, Union

from ipu_conformance.errors import ConformanceError, Inexpressible
from ipu_conformance.oracle.op import OPS, Op

Call = Callable[..., Any]
"""``call(module, *inputs, **attributes)``: the framework's module, its tensors and the oracle's attributes."""

LIBRARIES: Mapping[str, str] = {"poptorch": "torch", "tensorflow": "tensorflow", "paddle": "paddle"}
"""The library whose calls a framework takes."""


class TableError(ConformanceError):
    """The op table was asked for a row that it does not have, or was given one that it cannot hold."""


@dataclass(frozen=True)
class Missing:
    """A framework has no such op, for a reason."""

    reason: str


@dataclass(frozen=True, eq=False)
class Row:
    """One op: what the oracle calls it, and its call in each framework or the reason why there is none."""

    name: str
    torch: Union[Call, Missing]
    tensorflow: Union[Call, Missing]
    paddle: Union[Call, Missing]
    power: int = 1
    """The largest power of an input that a device forms on the way: squares overflow at the root of the range."""
    without_gradient: Tuple[str, ...] = ()
    """The libraries that have the op and not its gradient."""

    @property
    def op(self) -> Op:
        """The oracle's function, its gradient, its error model and its samples."""
        return OPS[self.name]

    def call(self, library: str) -> Call:
        """The call in ``library``: torch, tensorflow or paddle."""
        call = getattr(self, library)
        if isinstance(call, Missing):
            raise Inexpressible(call.reason)
        return call

    def missing(self, library: str) -> Optional[str]:
        """Why ``library`` has no such op; None if it has."""
        call = getattr(self, library)
        return call.reason if isinstance(call, Missing) else None


class Table(Mapping[str, Row]):
    """Every row by the name of its op."""

    def __init__(self) -> None:
        self._rows: Dict[str, Row] = {}

    def add(self, *rows: Row) -> None:
        """Register rows; a name is registered once, and the oracle must know it."""
        for row in rows:
            if row.name in self._rows:
                raise TableError(f"op {row.name!r} has two rows; keep one.")
            self._rows[OPS[row.name].name] = row

    def __getitem__(self, name: str) -> Row:
        try:
            return self._rows[name]
        except KeyError:
            raise TableError(f"the op table has no row {name!r}; it has {', '.join(sorted(self._rows))}.") from None

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


TABLE = Table()
"""The table itself; importing ``ipu_conformance.ops`` fills it."""


def call(path: str, *positional: str, **fixed: Any) -> Call:
    """A call of the framework's function of a dotted name.

    It gets the inputs, the attributes named ``positional`` in this order, and the others and ``fixed`` by keyword.
    """

    def ask(module: Any, *inputs: Any, **attributes: Any) -> Any:
        values = [attributes.pop(name) for name in positional]
        return reduce(getattr, path.split("."), module)(*inputs, *values, **attributes, **fixed)

    return ask


def functional(name: str, *positional: str, **fixed: Any) -> Call:
    """A call of ``nn.functional.<name>``, which PyTorch and Paddle both have."""
    return call(f"nn.functional.{name}", *positional, **fixed)


def refusing(ask: Call, when: Callable[..., bool], reason: str) -> Call:
    """The call of a framework that cannot express what ``when(*inputs, **attributes)`` is true for."""

    def guarded(module: Any, *inputs: Any, **attributes: Any) -> Any:
        if when(*inputs, **attributes):
            raise Inexpressible(reason)
        return ask(module, *inputs, **attributes)

    return guarded


def channels_last(tf: Any, x: Any) -> Any:
    """``x`` in the layout that TensorFlow computes in."""
    return tf.transpose(x, (0, *range(2, x.ndim), 1))


def channels_first(tf: Any, x: Any) -> Any:
    """``x`` back in the layout of the oracle."""
    return tf.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))
