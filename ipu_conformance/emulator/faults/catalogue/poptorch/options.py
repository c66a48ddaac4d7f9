"""Ways for options to be wrong: not frozen, shared by clones, unchecked, or left at another default."""

from __future__ import annotations

from typing import Any, Dict

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault

POINTS = {
    "options.frozen": "value: whether a change is refused because the options are in use",
    "options.checked": "value: whether a value of the wrong type, or against its rule, is refused",
    "options.stored": "value: dict of the values about to be stored, by name",
    "options.cloned": "value: the copy; original: the options that were copied",
    "options.seeded": "value: the seed that torch is about to be given, None for none",
    "options.calls": "value: list of what was read: (number, line) of a file or (method, value) of JSON",
}
for _name, _what in POINTS.items():
    catalogue.register_point(_name, _what)


def _without(value: Dict[str, Any], name: str) -> Dict[str, Any]:
    return {key: item for key, item in value.items() if key != name}


for _fault in (
    Fault("options-never-freeze", "plan", "options.frozen", "options in use can still be changed",
          lambda value, **context: False),
    Fault("options-unchecked", "plan", "options.checked", "values of wrong types are stored",
          lambda value, **context: False),
    Fault("options-clone-stays-frozen", "plan", "options.cloned", "a clone of frozen options is frozen",
          lambda value, original, **context: _frozen_like(value, original)),
    Fault("options-clone-shares-values", "plan", "options.cloned", "a clone changes together with its original",
          lambda value, original, **context: _sharing(value, original)),
    Fault("options-period-lost", "plan", "options.stored", "the period of an output mode is not stored",
          lambda value, **context: _without(value, "output_return_period")),
    Fault("options-seed-only-device", "plan", "options.seeded", "the random seed does not reach torch",
          lambda value, **context: None),
    Fault("options-file-last-line-ignored", "plan", "options.calls", "the last call of a file or of JSON is left out",
          lambda value, **context: value[:-1]),
):  # fmt: skip
    catalogue.register(_fault, __name__)


def _frozen_like(value: Any, original: Any) -> Any:
    if original._is_frozen:
        value._freeze()
    return value


def _sharing(value: Any, original: Any) -> Any:
    object.__setattr__(value, "_values", original._values)
    return value
