"""Names that TensorFlow 2.6 and its Keras have, which the vendor builds on, and later versions have elsewhere.

Programs for the vendor's build import them from modules that are not part of TensorFlow's public interface. This module
imports no TensorFlow: it is needed while TensorFlow itself is imported.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Dict, Mapping

PYTHON = "tensorflow.python"
SOURCES = "keras.src"
"""Where Keras keeps its modules from 2.13 on."""
LAYERS = (
    "advanced_activations", "convolutional", "convolutional_recurrent", "core", "dense_attention", "einsum_dense",
    "embeddings", "local", "merge", "multi_head_attention", "pooling", "recurrent", "recurrent_v2", "wrappers",
)  # fmt: skip
"""Modules of layers that are packages of several modules today: one package has all of their names."""
MOVED = {
    "engine": "engine",
    "distribute": "distribute",
    "feature_column": "feature_column",
    "legacy_tf_layers": "legacy_tf_layers",
    "backend_config": "backend_config",
    "optimizer_v1": "optimizers.optimizer_v1",
    "combinations": "testing_infra.test_combinations",
    "keras_parameterized": "testing_infra.test_combinations",
    "testing_utils": "testing_infra.test_utils",
    "initializers.initializers_v2": "initializers.initializers",
    "layers.legacy_rnn.rnn_cell_impl": "layers.rnn.legacy_cells",
    "layers.legacy_rnn": "layers.rnn",
    "layers.normalization": "layers.normalization",
    "layers.noise": "layers.noise",
    **{f"layers.{name}": "layers" for name in LAYERS},
    **{f"mixed_precision.{name}": f"mixed_precision.{name}" for name in ("loss_scale_optimizer", "policy")},
    **{
        f"saving.{name}": f"saving.legacy.{name}"
        for name in ("hdf5_format", "model_config", "save", "saved_model", "saving_utils")
    },
    **{
        f"utils.{name}": f"utils.{name}"
        for name in (
            "control_flow_util", "conv_utils", "data_utils", "generic_utils", "io_utils", "layer_utils",
            "losses_utils", "metrics_utils", "np_utils", "object_identity", "tf_contextlib", "tf_inspect", "tf_utils",
            "version_utils", "vis_utils",
        )
    },
}  # fmt: skip
"""Modules of Keras 2.6, and where each is in its sources of today."""

MODULES: Dict[str, str] = {
    **{f"keras.{earlier}": f"{SOURCES}.{today}" for earlier, today in MOVED.items()},
    **{f"{PYTHON}.keras.{name}": f"{SOURCES}.{name}" for name in ("applications", "datasets", "preprocessing")},
    f"{PYTHON}.keras.layers.normalization": f"{SOURCES}.layers.normalization",
    **{f"{PYTHON}.keras.layers.{name}": f"{SOURCES}.layers" for name in ("normalization_v2", "recurrent_v2")},
    **{
        f"{PYTHON}.data.experimental.ops.{name}": f"{PYTHON}.data.ops.options"
        for name in ("distribute_options", "optimization_options", "threading_options")
    },
    f"{PYTHON}.distribute.distribution_strategy_context": f"{PYTHON}.distribute.distribute_lib",
    f"{PYTHON}.training.tracking.graph_view": f"{PYTHON}.checkpoint.graph_view",
    f"{PYTHON}.training.tracking.tracking": f"{PYTHON}.trackable.autotrackable",
    f"{PYTHON}.training.tracking.util": f"{PYTHON}.checkpoint.checkpoint",
    f"{PYTHON}.training.tracking": f"{PYTHON}.trackable",
}
"""Modules of TensorFlow 2.6, and where each is today; a version that has one itself keeps it."""


def _in(place: str, names: str) -> Dict[str, str]:
    return dict.fromkeys(names.split(), f"{PYTHON}.{place}")


NAMES: Mapping[str, Mapping[str, str]] = {
    f"{PYTHON}.ops.control_flow_ops": {
        **_in("ops.cond", "cond cond_for_tf_v2"),
        **_in("ops.while_loop", "while_loop while_loop_v2"),
        **_in("ops.control_flow_case", "case case_v2"),
        **_in("ops.control_flow_switch_case", "switch_case"),
        **_in("ops.control_flow_assert", "Assert"),
    },
    f"{PYTHON}.ops.array_ops": _in("ops.array_ops_stack", "stack unstack"),
    f"{PYTHON}.ops.variables": {
        **_in("ops.variable_v1", "VariableV1 is_variable_initialized"),
        **_in("ops.ref_variable", "RefVariable"),
    },
    f"{PYTHON}.ops.nn": _in("ops.rnn", "bidirectional_dynamic_rnn dynamic_rnn raw_rnn static_rnn"),
    f"{PYTHON}.layers.normalization": dict.fromkeys(
        ("BatchNorm", "BatchNormalization", "batch_norm", "batch_normalization"),
        f"{SOURCES}.legacy_tf_layers.normalization",
    ),
    f"{PYTHON}.framework.ops": {
        **_in("framework.tensor", "Tensor enable_tensor_equality disable_tensor_equality"),
        **_in(
            "framework.indexed_slices",
            "IndexedSlices IndexedSlicesSpec convert_to_tensor_or_indexed_slices convert_n_to_tensor_or_indexed_slices "
            "internal_convert_to_tensor_or_indexed_slices internal_convert_n_to_tensor_or_indexed_slices",
        ),
        **_in("framework.tensor_conversion", "convert_to_tensor_v2 convert_to_tensor_v2_with_dispatch"),
        **_in("framework.tensor_conversion_registry", "register_tensor_conversion_function"),
    },
    f"{PYTHON}.data.ops.dataset_ops": _in("data.ops.options", "Options"),
    f"{PYTHON}.keras.layers": dict.fromkeys(
        ("BatchNormalization", "GRU", "GRUCell", "LayerNormalization", "LSTM", "LSTMCell"), f"{SOURCES}.layers"
    ),
}
"""Names that a module of TensorFlow 2.6 has, and the module that has each today."""


def change_names(module: ModuleType) -> None:
    """Make a module of TensorFlow lead to the names that it had, which are looked up when they are asked for."""
    places = NAMES[module.__name__]
    stock = getattr(module, "__getattr__", None)

    def find(name: str) -> Any:
        if name in places:
            return looked_up(places[name], name)
        if stock is not None:
            return stock(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    module.__getattr__ = find  # type: ignore[method-assign]


def looked_up(module: str, name: str) -> Any:
    """What a module of today has by that name."""
    return getattr(importlib.import_module(module), name)
