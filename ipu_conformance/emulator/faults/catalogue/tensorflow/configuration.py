"""Ways for the system around a program to be wrong: configuration, devices, environment and reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict

from ipu_conformance.emulator.faults.catalogue import Fault, always, never, patch, register, result

TREE, OPTIONS = "tensorflow.config.tree", "tensorflow.config.ipu_config"
SYSTEM, ENVIRONMENT = "tensorflow.config.system", "tensorflow.config.environment"
FOLDERS = "tensorflow.reports.folders"


@patch("config-true-not-stored", "plan", f"{TREE}:Category._store", "an attribute that is set to True stays False")
def _true_not_stored(original: Any, category: Any, row: Any, value: Any) -> None:
    original(category, row, False if value is True else value)


@patch("config-deprecated-name-dead", "plan", f"{TREE}:Category._store", "a deprecated name sets nothing")
def _deprecated_name_dead(original: Any, category: Any, row: Any, value: Any) -> None:
    if not row.sets:
        original(category, row, value)


@patch("config-copy-shares-values", "plan", f"{TREE}:Root.__deepcopy__", "a deep copy changes with its original")
def _sharing(original: Any, config: Any, memo: Dict[int, Any]) -> Any:
    copied = original(config, memo)
    object.__setattr__(copied, "_values", config._values)
    return copied


@patch("config-text-not-stored", "plan", f"{TREE}:Category._store", "an attribute that is a word keeps its default")
def _text_not_stored(original: Any, category: Any, row: Any, value: Any) -> None:
    original(category, row, row.default if isinstance(value, str) else value)


@patch("config-values-shared", "plan", f"{TREE}:Root.__init__", "configurations share their values", remembers=True)
def _shared(memory: Dict[Any, Any], original: Any, config: Any) -> None:
    original(config)
    object.__setattr__(config, "_values", memory.setdefault(type(config), config._values))


@patch("config-dictionary-shared", "plan", f"{TREE}:_plain", "a written configuration changes with its original")
def _same_objects(original: Any, value: Any) -> Any:
    return value if isinstance(value, (dict, list)) else original(value)


@patch("environment-flags-ignored", "plan", f"{ENVIRONMENT}:flags", "TF_POPLAR_FLAGS is not read")
def _no_flags(original: Any, environment: Any = None) -> Any:
    return original({})


@patch("environment-flags-read-once", "plan", f"{ENVIRONMENT}:flags", "TF_POPLAR_FLAGS is read once", remembers=True)
def _first_flags(memory: Dict[Any, Any], original: Any, environment: Any = None) -> Any:
    if "first" not in memory:
        memory["first"] = original(environment)
    return memory["first"]


@patch("environment-synthetic-ignored", "plan", f"{ENVIRONMENT}:Flags.synthetic",
       "synthetic data are never used for everything")  # fmt: skip
def _categories_only(original: Any, flags: Any, category: str) -> bool:
    return category.lower() in flags.categories


@patch("report-trace-always", "plan", f"{ENVIRONMENT}:report_parts", "a trace is written that was not asked for")
def _with_a_trace(original: Any, environment: Any = None) -> Any:
    parts = original(environment)
    return replace(parts, execution=parts.graph or parts.execution)


@patch("report-without-trace", "plan", f"{ENVIRONMENT}:report_parts", "a trace is never written")
def _without_a_trace(original: Any, environment: Any = None) -> Any:
    return replace(original(environment), execution=False)


@patch("report-unasked", "plan", f"{ENVIRONMENT}:report_parts", "a report is written that nobody has asked for")
def _unasked(original: Any, environment: Any = None) -> Any:
    return replace(original(environment), graph=True)


def _without_a_category(values: Any) -> Any:
    return {name: item for name, item in values.items() if name != "optimizations"}


def _one_replica(profile: Any) -> Any:
    return {**profile, "program": {**profile["program"], "replicas": 1}}


def _renamed(folder: Any) -> Any:
    return folder.rename(folder.with_name("report_of_" + folder.name))


def _in_place(original: Any, settings: Any) -> Any:
    settings.allow_soft_placement = True
    return settings


for _name, _function, _what, _wrong in (
    ("config-deprecation-silent", f"{TREE}:AttributeMetadata.warn_if_deprecated",
     "nothing is said of a deprecated attribute", always(None)),
    ("config-metadata-without-default", f"{TREE}:AttributeMetadata.default", "metadata tell of no default",
     always(None)),
    ("config-no-name-offered", f"{TREE}:Table.nearest", "an unknown name is refused without the nearest", always(None)),
    ("config-dictionary-incomplete", f"{TREE}:Category.to_dict", "a written configuration lacks a category",
     result(_without_a_category)),
    ("config-set-all-ignored", f"{OPTIONS}:IPUConfig._exceptions", "set_all turns nothing on", always({})),
    ("config-first-stays", f"{OPTIONS}:IpuOptions.__eq__", "another configuration does not replace the first",
     always(True)),
    ("config-always-changed", f"{OPTIONS}:IpuOptions.__eq__", "an equal configuration is taken for another", never),
    ("config-replaced-silently", f"{OPTIONS}:_warn_of_another", "nothing is said of a configuration that is replaced",
     always(None)),
    ("config-devices-merged", f"{SYSTEM}:_ipus_of_devices", "all selected IPUs make one device",
     result(lambda counts: (sum(counts),))),
    ("config-devices-of-one-ipu", f"{SYSTEM}:_ipus_of_devices", "every device has one IPU",
     result(lambda counts: (1,) * len(counts))),
    ("devices-not-listed", f"{SYSTEM}:_numbers", "TensorFlow's lists lack the last IPU device",
     result(lambda numbers: numbers[:-1])),
    ("sessions-place-hard", "tensorflow.activation:_softly", "sessions refuse what is placed on an IPU device",
     lambda original, settings: settings),
    ("sessions-change-settings", "tensorflow.activation:_softly", "a session changes the settings that it is given",
     _in_place),
    ("placement-always-soft", "stock.tensorflow.python.eager.context:Context.soft_device_placement",
     "TensorFlow says that it places softly", always(True)),
    ("environment-model-ignored", f"{ENVIRONMENT}:flags", "the IPU model is never in use",
     result(lambda flags: replace(flags, use_ipu_model=False))),
    ("report-not-written", f"{FOLDERS}:write", "no report is written", always(None)),
    ("report-folder-misnamed", f"{FOLDERS}:_new_folder", "report folders have another name", result(_renamed)),
    ("report-process-misnamed", f"{FOLDERS}:_new_folder", "report folders name no process",
     result(lambda folder: folder.rename(folder.with_name(f"{folder.name.rpartition('__')[0]}__0")))),
    ("report-state-missing", "tensorflow.reports.keras:optimizer_of",
     "the memory of a report has no optimizer's state", always("sgd")),
    ("report-micro-batches-wrong", "tensorflow.reports.profile:_program", "a profile tells of one micro-batch more",
     result(lambda program: {**program, "micro_batches": program["micro_batches"] + 1})),
    ("report-replicas-lost", "tensorflow.reports.profile:profile", "a profile tells of one replica",
     result(_one_replica)),
    ("config-never-reset", f"{SYSTEM}:reset", "a reset forgets nothing", always(None)),
):  # fmt: skip
    register(Fault(_name, "plan", _function, _what, _wrong), __name__)
