"""The environment variables that set options of every model.

``POPTORCH_WAIT_FOR_IPU`` and ``POPTORCH_IPU_MODEL_VERSION`` are accepted and change nothing: an emulated IPU is never
taken by another program, and its description does not depend on the vendor's model of it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Mapping

from ipu_conformance.emulator.poptorch.options import files

if TYPE_CHECKING:
    from ipu_conformance.emulator.poptorch.options.options import Options

DEFAULT_OPTIONS = "POPTORCH_DEFAULT_OPTIONS"
CACHE_DIR = "POPTORCH_CACHE_DIR"
IPU_MODELS = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")
ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"


def apply(options: Options, environment: Mapping[str, str] = os.environ) -> None:
    """Set on fresh options what the environment asks for."""
    if any(is_set(name, environment) for name in IPU_MODELS):
        options.useIpuModel(True)
    if environment.get(CACHE_DIR):
        options.enableExecutableCaching(environment[CACHE_DIR])
    if environment.get(DEFAULT_OPTIONS):
        files.apply_json(options, environment[DEFAULT_OPTIONS], source=f"the environment variable {DEFAULT_OPTIONS}")


def is_set(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a variable is set to something other than 0, false, off or nothing."""
    return environment.get(name, "0").strip().lower() not in ("", "0", "false", "off")


def apply_engine_options(options: Options, environment: Mapping[str, str] = os.environ) -> None:
    """Set Poplar's engine options of the environment, which win over the program's, and the reports they ask for."""
    text = environment.get(ENGINE_OPTIONS)
    if not text:
        return
    try:
        engine_options = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{ENGINE_OPTIONS} is not JSON ({error}): use a JSON object of strings") from error
    if not isinstance(engine_options, dict):
        raise ValueError(f"{ENGINE_OPTIONS} is {text!r}: use a JSON object of strings")
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in engine_options.items()}
    if texts.get("autoReport.all") == "true":
        options.enableProfiling(texts.get("autoReport.directory", options.profile_dir))
    options._popart.setEngineOptions({**options._popart.options.get("engineOptions", {}), **texts})
