"""The environment variables of an IPU build, read each time they matter, so that a program may set them itself."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from ipu_conformance.emulator.core.device import EMULATED_IPUS
from ipu_conformance.emulator.faults.decisions import paddle_strategy as decide

IPU_MODEL = "POPLAR_IPUMODEL"
COMPILE_ONLY = "IPU_COMPILE_ONLY"
ONNX_DUMP_PATH = "IPU_ONNX_DUMP_PATH"
CACHE_PATH = "IPU_CACHE_PATH"
INSTANCES = ("PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE")
"""How many processes run the program, as the launch command and poprun set it."""

_TRUE = ("1", "true", "True", "TRUE")


def uses_model(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether programs are compiled for the IPU model: one device, of as many IPUs and tiles as the strategy says."""
    return decide("uses model", environment.get(IPU_MODEL, "") in _TRUE)


def device_count() -> int:
    """How many IPUs a program may attach to; the IPU model is one device."""
    return decide("devices", 1 if uses_model() else EMULATED_IPUS)


def compile_only(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a compiled program is not run: it is compiled, and what it fetches stays unwritten."""
    return decide("compile only", environment.get(COMPILE_ONLY, "") in _TRUE)


def onnx_dump_path(strategy: Any, environment: Mapping[str, str] = os.environ) -> Optional[str]:
    """Where the compiled model is written as ONNX, None for nowhere; the variable beats the strategy's option."""
    named, option = environment.get(ONNX_DUMP_PATH), strategy.value("onnx_dump_path")
    return decide("dump path", named or option or None, option=option)


def cache_path(strategy: Any, environment: Mapping[str, str] = os.environ) -> Optional[str]:
    """The folder of compiled executables, None without a cache; the variable turns the cache on by itself."""
    named = decide("cache path", environment.get(CACHE_PATH))
    if named:
        return named
    return strategy.value("cache_path") if strategy.value("enable_engine_caching") else None


def instances(environment: Mapping[str, str] = os.environ) -> int:
    """How many processes run the program together."""
    counts = [environment.get(name, "") for name in INSTANCES]
    return max([1, *(int(count) for count in counts if count.isdigit())])
