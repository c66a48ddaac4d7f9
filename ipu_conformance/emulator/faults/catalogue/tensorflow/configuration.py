"""Ways for the system around a program to be wrong: configuration, devices, environment, strategies and reports."""

from __future__ import annotations

from typing import Any, Callable

from ipu_conformance.emulator.faults import catalogue
from ipu_conformance.emulator.faults.catalogue import Fault, always, never, where
from ipu_conformance.emulator.faults.decisions import tensorflow_system

POINT = tensorflow_system.point


def _sharing(value: Any, original: Any, **context: Any) -> Any:
    object.__setattr__(value, "_values", original._values)
    return value


def _without_a_category(value: Any, **context: Any) -> Any:
    return {name: item for name, item in value.items() if name != "optimizations"}


def _silent(value: Any, **context: Any) -> Callable[..., None]:
    return lambda *args: None


def _one_replica(value: Any, **context: Any) -> Any:
    return {**value, "program": {**value["program"], "replicas": 1}}


for _name, _rule, _what, _wrong in (
    # Configuration
    ("config-types-unchecked", "type-accepted", "attributes take values of any type", always(True)),
    ("config-true-not-stored", "stored", "an attribute that is set to True stays False",
     lambda value, **context: False if value is True else value),
    ("config-deprecation-silent", "deprecated", "nothing is said of a deprecated attribute", never),
    ("config-deprecated-name-dead", "stored-as", "a deprecated name sets nothing", lambda value, row, **_: row.name),
    ("config-no-name-offered", "nearest-name", "an unknown name is refused without the nearest", always(None)),
    ("config-category-assignable", "category", "a category is taken for an attribute", never),
    ("config-dictionary-incomplete", "written", "a written configuration lacks a category", _without_a_category),
    ("config-copy-shares-values", "copied", "a deep copy changes with its original", _sharing),
    ("config-two-selections", "two-selections", "IPUs are selected in two ways at once", never),
    ("config-model-ids", "model-selection", "IPUs of the IPU model are selected by ids", never),
    ("config-set-all-ignored", "exceptions", "set_all turns nothing on", always({})),
    ("config-devices-merged", "devices", "all selected IPUs make one device", lambda value, **_: (sum(value),)),
    ("config-devices-of-one-ipu", "devices", "every device has one IPU", lambda value, **_: (1,) * len(value)),
    ("config-any-number-of-ipus", "too-many-ipus", "more IPUs are promised than there are", never),
    ("config-first-stays", "changed", "another configuration does not replace the first", never),
    ("config-always-changed", "changed", "an equal configuration is taken for another", always(True)),
    ("config-replaced-silently", "warned", "nothing is said of a configuration that is replaced", _silent),
    ("config-replaced-unasked", "configured-once", "a configuration is replaced that must stay", never),
    # Devices
    ("devices-not-listed", "devices-listed", "TensorFlow's lists lack the last IPU device",
     lambda value, **context: max(0, value - 1)),
    ("sessions-place-hard", "soft-placement", "sessions refuse what is placed on an IPU device", never),
    # Environment
    ("environment-flags-ignored", "flags", "TF_POPLAR_FLAGS is not read", always({})),
    ("environment-flags-read-once", "flags", "TF_POPLAR_FLAGS is read once",
     lambda value, memory, **context: memory.setdefault("first", value)),
    ("environment-synthetic-ignored", "synthetic-data", "synthetic data are never used for everything",
     never),
    ("environment-model-ignored", "flags", "the IPU model is never in use",
     lambda value, **context: {name: item for name, item in value.items() if name != "use_ipu_model"}),
    # Reports
    ("report-not-written", "report-written", "no report is written", never),
    ("report-folder-misnamed", "report-folder", "report folders have another name",
     lambda value, **context: value.with_name("report_of_" + value.name)),
    ("report-replicas-lost", "profile", "a profile tells of one replica", _one_replica),
    ("report-trace-always", "trace-written", "a trace is written that was not asked for", always(True)),
    # This one comes last: what it leaves configured would be found by whoever comes next.
    ("config-never-reset", "reset", "a reset forgets nothing", never),
):  # fmt: skip
    catalogue.register(
        Fault(_name, "streams" if "elements" in _name else "plan", POINT, _what, where(_rule, _wrong)), __name__
    )
