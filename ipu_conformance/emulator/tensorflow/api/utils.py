"""The vendor's functions around a configuration: put it in force, ask for it, forget it, and what depends on it."""

from __future__ import annotations

from enum import Enum
from typing import Any, Optional

from tensorflow.python.framework import device_spec, ops, random_seed

from ipu_conformance.emulator.tensorflow.api import config as _config
from ipu_conformance.emulator.tensorflow.api.config import *  # noqa: F403 (the vendor has them in both modules)
from ipu_conformance.emulator.tensorflow.config import environment as _environment
from ipu_conformance.emulator.tensorflow.config import system as _system
from ipu_conformance.emulator.tensorflow.surface import unavailable_function as _unavailable_function

__all__ = [
    "SyntheticDataCategory",
    "export_dataset_to_file",
    "export_inputs_to_file",
    "get_num_of_ipus_in_device",
    "move_variable_initialization_to_cpu",
    "reset_ipu_seed",
    "use_synthetic_data_for",
]
__all__ += _config.__all__

_EXPORTED = "a file of exported data is read by an executable of the vendor's compiler"
export_dataset_to_file = _unavailable_function("export_dataset_to_file", _EXPORTED)
export_inputs_to_file = _unavailable_function("export_inputs_to_file", _EXPORTED)


class SyntheticDataCategory(Enum):
    """What data that never leaves or reaches the host can stand for."""

    Seed = 0
    Infeed = 1
    Outfeed = 2
    HostEmbedding = 3
    Parameters = 4


def get_num_of_ipus_in_device(ipu_device: str, device: str = "cpu") -> int:
    """How many IPUs a device has that is named like ``/device:IPU:0``."""
    spec = device_spec.DeviceSpecV2.from_string(ipu_device)
    if spec.device_type != "IPU":
        raise ValueError(f"{ipu_device!r} is not an IPU device; name one such as '/device:IPU:0'.")
    return _system.ipus(int(spec.device_index or 0))


def use_synthetic_data_for(synthetic_data_category: SyntheticDataCategory) -> bool:
    """Whether TF_POPLAR_FLAGS asks for synthetic data of that category."""
    if not isinstance(synthetic_data_category, SyntheticDataCategory):
        raise ValueError(
            f"{synthetic_data_category!r} is not a category of synthetic data; "
            f"use {', '.join(str(category) for category in SyntheticDataCategory)}."
        )
    return _environment.flags().synthetic(synthetic_data_category.name)


def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Restart the random numbers of a device from a seed."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"The seed {seed!r} is of type {type(seed).__name__}; use a whole number.")
    _system.set_seed(device, seed, experimental_identical_replicas)
    random_seed.set_seed(seed)


def move_variable_initialization_to_cpu(graph: Optional[Any] = None) -> None:
    """Place the initializers of a graph's variables on the host."""
    graph = graph or ops.get_default_graph()
    pending = [
        variable.initializer
        for key in (ops.GraphKeys.GLOBAL_VARIABLES, ops.GraphKeys.LOCAL_VARIABLES)
        for variable in graph.get_collection(key)
    ]
    seen = set()
    while pending:
        op = pending.pop()
        if op in seen or op.type == "VarHandleOp":
            continue
        seen.add(op)
        op._set_device("/device:CPU:0")
        pending += [tensor.op for tensor in op.inputs]


def __getattr__(name: str) -> Any:
    """A function that configured earlier SDKs or read their events; the room is entered by the first call of one."""
    from ipu_conformance.emulator.tensorflow.legacy import events, options

    if name in events.FUNCTIONS:
        return events.FUNCTIONS[name]
    if name not in options.SETTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return options.function(name)
