"""What environment variables say about the options of every model.

``POPTORCH_WAIT_FOR_IPU`` and ``POPTORCH_IPU_MODEL_VERSION`` are accepted and change nothing: an emulated IPU is never
taken by another program, and its description does not depend on the vendor's model of it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Dict, Mapping, Optional

from ipu_conformance.emulator.poptorch.options import files

if TYPE_CHECKING:
    from ipu_conformance.emulator.poptorch.options.main import Options

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


def engine_options(options: Options, environment: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """Poplar's engine options: those of the environment win over those of the program."""
    given: Mapping[str, str] = os.environ if environment is None else environment
    merged = dict(options._popart.options.get("engineOptions", {}))
    if given.get(ENGINE_OPTIONS):
        try:
            read = json.loads(given[ENGINE_OPTIONS])
        except ValueError as error:
            raise ValueError(f"{ENGINE_OPTIONS} is not JSON ({error}): use a JSON object of strings") from error
        if not isinstance(read, dict):
            raise ValueError(f"{ENGINE_OPTIONS} is {given[ENGINE_OPTIONS]!r}: use a JSON object of strings")
        merged.update({str(name): str(value) for name, value in read.items()})
    return merged
