"""Calls that are refused, as rows: what is called, with what, the error and a part of its sentence."""

from __future__ import annotations

import operator
from typing import Any, Dict, Iterable, List, Tuple

import pytest

from ipu_conformance import check

from .device_programs import Device

Row = Tuple[Any, Any, Any, str]
"""A function of the device or a name in the vendor's package; its arguments in a tuple or by their names; the error, or
its name among TensorFlow's; and what its sentence holds."""


def params(rows: Iterable[str], emulated: Iterable[str] = ()) -> List[Any]:
    """Rows as parameters, of which the emulator alone is asked for some."""
    return [pytest.param(what, marks=pytest.mark.emulator if what in emulated else ()) for what in rows]


def check_refused(device: Device, what: str, rows: Dict[str, Row]) -> None:
    """What a row calls is refused in its words."""
    __tracebackhide__ = True
    act, arguments, error, text = rows[what]
    positional, named = ((), arguments) if isinstance(arguments, dict) else (arguments, {})
    called = operator.attrgetter(act)(device.ipu) if isinstance(act, str) else act
    place = () if isinstance(act, str) else (device,)
    kind = getattr(device.tf.errors, error) if isinstance(error, str) else error

    with check.raises(kind, match=text, what=what):
        called(*place, *positional, **named)
