"""Faults of the configuration, its devices, the environment, strategies and reports."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.faults import Fault

POINTS = {
    "configuration.accepted": "value: whether a value is of its attribute's type; attribute: its name",
    "configuration.stored": "value: what is stored; attribute: its name",
    "configuration.exported": "value: the dictionary of a whole configuration",
    "configuration.copied": "value: a deep copy of a configuration; original: what was copied",
    "configuration.category": "value: whether an attribute is a category; attribute: its name",
    "environment.flags": "value: the dictionary of what TF_POPLAR_FLAGS says",
    "reports.wanted": "value: whether a report is written; program: the compiled program's name",
    "reports.profile": "value: the dictionary that becomes profile.json",
    "reports.folder": "value: the path of a new report folder",
    "strategy.results": "value: list with the results of every replica of a function that was run",
    "configuration.devices": "value: tuple with the number of IPUs of each device; options: the configuration",
    "configuration.changed": "value: whether a configuration differs from the one in force",
    "configuration.seed": "value: the seed that a device's random numbers start from",
    "configuration.initializer": "value: whether an op that initialises variables goes to the host",
}
"""Every hook point of these modules with what ``value`` and the context are there."""

for _point, _what in POINTS.items():
    faults.register_point(_point, _what)


def _accepting(*attributes: str) -> Any:
    return lambda value, attribute, **context: True if attribute in attributes or not attributes else value


def _without(name: str) -> Any:
    def wrong(value: Dict[str, Any], **context: Any) -> Dict[str, Any]:
        return {key: item for key, item in value.items() if key != name}

    return wrong


def _sharing(value: Any, original: Any, **context: Any) -> Any:
    object.__setattr__(value, "_values", original._values)
    return value


def _nothing_stored(value: Any, attribute: str, **context: Any) -> Any:
    return False if isinstance(value, bool) else value


def _one_device(value: Tuple[int, ...], **context: Any) -> Tuple[int, ...]:
    return (sum(value),)


def _one_ipu_each(value: Tuple[int, ...], **context: Any) -> Tuple[int, ...]:
    return (1,) * len(value)


def _last_result(value: List[Any], **context: Any) -> List[Any]:
    return value[::-1]


def _folder_of_all(value: Any, **context: Any) -> Any:
    return value.with_name("report_of_" + value.name)


def _one_replica(value: Dict[str, Any], **context: Any) -> Dict[str, Any]:
    return {**value, "program": {**value["program"], "replicas": 1}}


for _fault in (
    Fault("config-types-unchecked", "plan", "configuration.accepted", "attributes take values of any type",
          _accepting()),
    Fault("config-true-not-stored", "plan", "configuration.stored", "an attribute that is set to True stays False",
          _nothing_stored),
    Fault("config-dictionary-incomplete", "plan", "configuration.exported", "a written configuration lacks a category",
          _without("optimizations")),
    Fault("config-copy-shares-values", "plan", "configuration.copied", "a deep copy changes with its original",
          _sharing),
    Fault("config-category-assignable", "plan", "configuration.category", "a category is taken for an attribute",
          lambda value, **context: False),
    Fault("config-devices-merged", "plan", "configuration.devices", "all selected IPUs make one device", _one_device),
    Fault("config-devices-of-one-ipu", "plan", "configuration.devices", "every device has one IPU", _one_ipu_each),
    Fault("config-first-stays", "plan", "configuration.changed", "another configuration does not replace the first",
          lambda value, **context: False),
    Fault("config-always-changed", "plan", "configuration.changed", "an equal configuration is taken for another",
          lambda value, **context: True),
    Fault("config-seed-ignored", "plan", "configuration.seed", "every seed is the same seed",
          lambda value, **context: 0),
    Fault("config-initializers-stay", "plan", "configuration.initializer", "initialisers stay on the device",
          lambda value, **context: False),
    Fault("environment-flags-ignored", "plan", "environment.flags", "TF_POPLAR_FLAGS is not read",
          lambda value, **context: {}),
    Fault("environment-model-stuck", "plan", "environment.flags", "TF_POPLAR_FLAGS is read once",
          lambda value, memory, **context: memory.setdefault("first", value)),
    Fault("strategy-last-result", "streams", "strategy.results", "the host gets the last replica's result",
          _last_result),
    Fault("report-not-written", "plan", "reports.wanted", "no report is written",
          lambda value, **context: False),
    Fault("report-folder-misnamed", "plan", "reports.folder", "report folders have another name", _folder_of_all),
    Fault("report-replicas-lost", "plan", "reports.profile", "a profile tells of one replica", _one_replica),
):  # fmt: skip
    faults.register(_fault)
