"""The operations that the functions of ``tensorflow.python.ipu`` are made of, in the vendor's modules.

Each works where one of those functions does the same; the others can be imported, and refuse to be called.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict

from ipu_conformance.emulator.tensorflow.legacy.events import ipu_event_trace
from ipu_conformance.emulator.tensorflow.legacy.plugin.poplar import generated

API = "ipu_conformance.emulator.tensorflow.api"


def _api(module: str) -> Any:
    return importlib.import_module(f"{API}.{module}")


def ipu_clear_all_xla_compilation_caches(name: Any = None) -> Any:
    """Forget what was compiled: nothing is kept here that another run could take for its own."""
    import tensorflow as tf

    return tf.no_op(name)


def ipu_get_num_devices(device: str, name: Any = None) -> Any:
    """How many IPUs a device has."""
    return _constant(_api("utils").get_num_of_ipus_in_device(device), "int64", name)


def ipu_model_used(name: Any = None) -> Any:
    """Whether the IPU model is used."""
    return _constant(_api("utils").running_on_ipu_model(), "bool", name)


def ipu_reset_seed(device: str, seed: int, identical_replicas: bool = False, name: Any = None) -> Any:
    """Restart the random numbers of a device."""
    import tensorflow as tf

    _api("utils").reset_ipu_seed(seed, device, experimental_identical_replicas=identical_replicas)
    return tf.no_op(name)


def ipu_use_synthetic_data_for(synthetic_data_category: int, name: Any = None) -> Any:
    """Whether data of a category, by its number, is synthetic."""
    utils = _api("utils")
    category = utils.SyntheticDataCategory(synthetic_data_category)
    return _constant(utils.use_synthetic_data_for(category), "bool", name)


def ipu_cross_replica_sum(input: Any, replica_group_size: int = 0, name: Any = None) -> Any:
    """The sum over the replicas of a group, or over all of them."""
    return _api("ops.cross_replica_ops").cross_replica_sum(input, replica_group_size or None, name)


def replication_index(name: Any = None) -> Any:
    """The number of the replica."""
    return _api("ops.replication_ops").replication_index(name)


def _activation(function: str) -> Callable[..., Any]:
    def operation(features: Any, name: Any = None) -> Any:
        return getattr(_api("ops.nn_ops"), function)(features, name=name)

    operation.__name__ = f"ipu_{function}"
    return operation


def _constant(value: Any, dtype: str, name: Any) -> Any:
    import tensorflow as tf

    with tf.device("/device:CPU:0"):
        return tf.constant(value, dtype, name=name or "Const")


OPERATIONS: Dict[str, Dict[str, Any]] = {
    "gen_ipu_ops": {
        operation.__name__: operation
        for operation in (
            ipu_clear_all_xla_compilation_caches,
            ipu_event_trace,
            ipu_get_num_devices,
            ipu_model_used,
            ipu_reset_seed,
            ipu_use_synthetic_data_for,
        )
    },
    "gen_popnn_ops": {f"ipu_{name}": _activation(name) for name in ("gelu", "hard_sigmoid", "softmax", "swish")},
    "gen_popops_ops": {"ipu_cross_replica_sum": ipu_cross_replica_sum},
    "gen_poputil_ops": {"replication_index": replication_index},
    **{
        name: {}
        for name in (
            "gen_application_runtime", "gen_dataset_benchmark", "gen_dataset_exporters", "gen_dataset_ops",
            "gen_functional_ops", "gen_pop_datastream_ops", "gen_popfloat_ops", "gen_poprand_ops", "gen_sendrecv_ops",
        )
    },
}  # fmt: skip
"""The vendor's modules of operations, with those that work here."""

globals().update(
    {name: generated.module(f"{__name__}.{name}", members, generated.refusing) for name, members in OPERATIONS.items()}
)
