"""What environment variables say about the options of every model.

``POPTORCH_WAIT_FOR_IPU`` and ``POPTORCH_IPU_MODEL_VERSION`` are accepted and change nothing: an emulated IPU is never
taken by another program, and its description does not depend on the vendor's model of it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Mapping, Optional

from ipu_conformance.emulator.poptorch.options import files

if TYPE_CHECKING:
    from ipu_conformance.emulator.poptorch.options.options import Options

DEFAULT_OPTIONS = "POPTORCH_DEFAULT_OPTIONS"
CACHE_DIR = "POPTORCH_CACHE_DIR"
IPU_MODELS = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")
ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"


def apply(options: Options, environment: Optional[Mapping[str, str]] = None) -> None:
    """Set on fresh options what the environment asks for."""
    given: Mapping[str, str] = os.environ if environment is None else environment
    if any(is_set(name, given) for name in IPU_MODELS):
        options.useIpuModel(True)
    if given.get(CACHE_DIR):
        options.enableExecutableCaching(given[CACHE_DIR])
    if given.get(DEFAULT_OPTIONS):
        files.apply_json(options, given[DEFAULT_OPTIONS], source=f"the environment variable {DEFAULT_OPTIONS}")


def is_set(name: str, environment: Optional[Mapping[str, str]] = None) -> bool:
    """Whether a variable is there and says neither 0 nor nothing."""
    given: Mapping[str, str] = os.environ if environment is None else environment
    return given.get(name, "0").strip().lower() not in ("", "0", "false", "off")


def apply_engine_options(options: Options, environment: Optional[Mapping[str, str]] = None) -> None:
    """Set Poplar's engine options of the environment, which win over the program's; a report that they ask for too."""
    given: Mapping[str, str] = os.environ if environment is None else environment
    if not given.get(ENGINE_OPTIONS):
        return
    try:
        read = json.loads(given[ENGINE_OPTIONS])
    except ValueError as error:
        raise ValueError(f"{ENGINE_OPTIONS} is not JSON ({error}): use a JSON object of strings") from error
    if not isinstance(read, dict):
        raise ValueError(f"{ENGINE_OPTIONS} is {given[ENGINE_OPTIONS]!r}: use a JSON object of strings")
    texts = {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in read.items()}
    if texts.get("autoReport.all") == "true":
        options.enableProfiling(texts.get("autoReport.directory", options.profile_dir))
    options._popart.setEngineOptions({**options._popart.options.get("engineOptions", {}), **texts})
