"""Checks of plain facts: two objects are equal, something is contained, a relation holds."""

from __future__ import annotations

from typing import Any, Tuple, Type, Union

import numpy as np

from ipu_conformance.check.failure import CheckMisuseError, failure

_LONGEST = 400


def equal(*, actual: Any, expected: Any, what: str) -> None:
    """Two Python objects are equal; arrays have ``identical`` and ``close``."""
    __tracebackhide__ = True
    for value in (actual, expected):
        if isinstance(value, np.ndarray) and value.ndim:
            raise CheckMisuseError(f"{what} is an array: compare it with identical or close")
    if actual != expected:
        raise failure(f"{what} is {_shown(actual)} where {_shown(expected)} is expected.")


def differs(*, actual: Any, other: Any, what: str) -> None:
    """Two values are not the same: arrays of one shape differ somewhere, other objects are unequal."""
    __tracebackhide__ = True
    if np.array_equal(actual, other) if isinstance(actual, np.ndarray) else actual == other:
        raise failure(f"{what} is {_shown(actual)}, which it must not be.")


def contains(*, actual: Any, expected: Any, what: str) -> None:
    """A text holds a word, or a collection a member."""
    __tracebackhide__ = True
    if expected not in actual:
        raise failure(f"{what} holds no {_shown(expected)}: it is {_shown(actual)}.")


def lacks(*, actual: Any, unexpected: Any, what: str) -> None:
    """A text does not hold a word, nor a collection a member."""
    __tracebackhide__ = True
    if unexpected in actual:
        raise failure(f"{what} holds {_shown(unexpected)}, which it must not: it is {_shown(actual)}.")


def instance(*, actual: Any, expected: Union[Type[Any], Tuple[Type[Any], ...]], what: str) -> None:
    """A value is of a type, or of one of several."""
    __tracebackhide__ = True
    if not isinstance(actual, expected):
        names = " or ".join(kind.__name__ for kind in (expected if isinstance(expected, tuple) else (expected,)))
        raise failure(f"{what} is a {type(actual).__name__} where {names} is expected.")


def holds(condition: Any, sentence: str) -> None:
    """A condition is true; ``sentence`` says what is wrong when it is not, with the values that decide it."""
    __tracebackhide__ = True
    if not condition:
        raise failure(sentence)


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
