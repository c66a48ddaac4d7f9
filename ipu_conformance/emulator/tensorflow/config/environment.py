"""The environment variables that the vendor's TensorFlow reads: they count at the moment something asks for them."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Union

from ipu_conformance.emulator.tensorflow.refusals import system as refusals
from ipu_conformance.errors import ConformanceError

FLAGS_VARIABLE = "TF_POPLAR_FLAGS"
ENGINE_VARIABLE = "POPLAR_ENGINE_OPTIONS"
EVERYTHING = "autoReport.all"
GRAPH_PROFILE = "autoReport.outputGraphProfile"
EXECUTION_PROFILE = "autoReport.outputExecutionProfile"
DIRECTORY = "autoReport.directory"
CATEGORIES = ("infeed", "outfeed", "seed", "hostembedding", "parameters")
"""What synthetic data can stand for, as ``synthetic_data_categories`` names it."""

_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no")


class EnvironmentVariableError(ConformanceError, ValueError):
    """An environment variable cannot be understood."""


@dataclass(frozen=True)
class Flags:
    """The switches of ``TF_POPLAR_FLAGS``; a field's default is what a missing switch means."""

    help: bool = False
    use_ipu_model: bool = False
    use_synthetic_data: bool = False
    synthetic_data_categories: str = ""
    synthetic_data_initializer: str = ""
    executable_cache_path: str = ""
    max_compilation_threads: int = -1
    max_infeed_threads: int = -1
    log_cycle_count: int = -1
    while_loop_brute_force_max_trip_count: int = 128
    tensor_map_file_path: str = ""
    dump_schedule_as_dot: bool = False
    dump_text_reports_to_stdio: bool = False
    fallback_scheduler: bool = False
    null_data_feed: bool = False
    on_demand_device_poll_time: int = 1000
    on_demand_device_timeout: int = 3600000
    ipu_model_tiles: int = -1
    sync_replica_start: bool = False
    show_progress_bar: str = "auto"
    progress_bar_inner_width: int = 40
    disable_poplar_version_check: bool = False
    save_oom_profiler: str = ""
    save_interval_report: str = ""

    def synthetic(self, category: str) -> bool:
        """Whether data of that category (of ``CATEGORIES``) never leaves or reaches the host."""
        return self.use_synthetic_data or category.lower() in self.categories

    @property
    def categories(self) -> FrozenSet[str]:
        """The categories that are synthetic on their own."""
        return frozenset(name.strip().lower() for name in self.synthetic_data_categories.split(",") if name.strip())


_TYPES: Dict[str, type] = {field.name: type(field.default) for field in fields(Flags)}


def flags(environment: Optional[Mapping[str, str]] = None) -> Flags:
    """The switches that are set now; an unknown one, or a value of a wrong kind, is refused."""
    text = (os.environ if environment is None else environment).get(FLAGS_VARIABLE, "")
    found: Dict[str, Any] = {}
    for word in _words(text):
        name, given, value = word.lstrip("-").partition("=")
        refusals.UNKNOWN_SWITCH(word=word, name=name, known=_TYPES, variable=FLAGS_VARIABLE)
        found[name] = _value(name, value if given else None)
    read = Flags(**found)
    refusals.UNKNOWN_CATEGORY(given=read.categories, known=CATEGORIES, variable=FLAGS_VARIABLE)
    return read


def _words(text: str) -> List[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise EnvironmentVariableError(f"{FLAGS_VARIABLE} cannot be split into switches: {error}.") from None


def _value(name: str, text: Optional[str]) -> Union[bool, int, str]:
    kind = _TYPES[name]
    if kind is bool:
        return text is None or _is_true(FLAGS_VARIABLE, f"--{name}", text)
    refusals.SWITCH_WITHOUT_VALUE(variable=FLAGS_VARIABLE, name=name, value=text)
    if kind is int:
        refusals.NUMBER_SWITCH(variable=FLAGS_VARIABLE, name=name, value=text)
        return int(text or 0)
    return text or ""


def _is_true(variable: str, name: str, text: str) -> bool:
    refusals.BOOLEAN_SWITCH(variable=variable, name=name, value=text, known=(*_TRUE, *_FALSE))
    return text.lower() in _TRUE


def engine_options(environment: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The options of ``POPLAR_ENGINE_OPTIONS``, a JSON object whose values are text."""
    text = (os.environ if environment is None else environment).get(ENGINE_VARIABLE, "")
    if not text.strip():
        return {}
    try:
        read = json.loads(text)
    except ValueError as error:
        raise EnvironmentVariableError(f"{ENGINE_VARIABLE} is not JSON: {error}.") from None
    refusals.ENGINE_OPTIONS(variable=ENGINE_VARIABLE, text=text, read=read)
    return {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in read.items()}


@dataclass(frozen=True)
class ReportParts:
    """What reports hold: what a program is, and what is executed when."""

    graph: bool = False
    execution: bool = False


def report_parts(environment: Optional[Mapping[str, str]] = None) -> ReportParts:
    """The parts that ``autoReport`` options ask for; one that is set on its own counts more than ``autoReport.all``."""
    options = engine_options(environment)

    def asked(name: str) -> bool:
        return _is_true(ENGINE_VARIABLE, name, options.get(name, options.get(EVERYTHING, "false")).lower())

    return ReportParts(asked(GRAPH_PROFILE), asked(EXECUTION_PROFILE))


def report_directory(environment: Optional[Mapping[str, str]] = None) -> Optional[Path]:
    """The folder that report folders are made in, None where no report is asked for."""
    parts = report_parts(environment)
    if not (parts.graph or parts.execution):
        return None
    return Path(engine_options(environment).get(DIRECTORY, "."))
