"""The environment variables of an IPU build, read each time they matter, so that a program may set them itself."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from ipu_conformance.emulator.core.device import EMULATED_IPUS

IPU_MODEL = "POPLAR_IPUMODEL"
COMPILE_ONLY = "IPU_COMPILE_ONLY"
ONNX_DUMP_PATH = "IPU_ONNX_DUMP_PATH"
CACHE_PATH = "IPU_CACHE_PATH"
INSTANCES = ("PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE")
"""How many processes run the program, as the launch command and poprun set it."""

_TRUE = ("1", "true", "True", "TRUE")


def uses_model(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether programs are compiled for the IPU model: one device, of as many IPUs and tiles as the strategy says."""
    return environment.get(IPU_MODEL, "") in _TRUE


def device_count() -> int:
    """How many IPUs a program may attach to; the IPU model is one device."""
    return 1 if uses_model() else EMULATED_IPUS


def compile_only(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a compiled program is not run: it is compiled, and what it fetches stays unwritten."""
    return environment.get(COMPILE_ONLY, "") in _TRUE


def onnx_dump_path(strategy: Any, environment: Mapping[str, str] = os.environ) -> Optional[str]:
    """Where the compiled model is written as ONNX, None for nowhere; the variable beats the strategy's option."""
    return environment.get(ONNX_DUMP_PATH) or strategy.value("onnx_dump_path") or None


def cache_path(strategy: Any, environment: Mapping[str, str] = os.environ) -> Optional[str]:
    """The folder of compiled executables, None without a cache; the variable turns the cache on by itself."""
    if environment.get(CACHE_PATH):
        return environment[CACHE_PATH]
    return strategy.value("cache_path") if strategy.value("enable_engine_caching") else None


def instances(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes run the program together."""
    counts = [environment.get(name, "") for name in INSTANCES]
    return max([1, *(int(count) for count in counts if count.isdigit())])
