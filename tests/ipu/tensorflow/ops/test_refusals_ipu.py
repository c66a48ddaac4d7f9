"""What the vendor's operations and layers refuse."""

from __future__ import annotations

import importlib
from typing import Any, Dict

import numpy as np
import pytest

from ..device_programs import Device
from ..refusals import Row, check_refused, params

TABLE = np.arange(12, dtype=np.float32).reshape(6, 2)


def on_two(device: Device, module: str, name: str, *rest: Any) -> Any:
    """A collective of two replicas."""
    collective = getattr(getattr(device.open(2).ipu, module), name)
    return device.outfed(1, lambda x: collective(x, *rest), np.ones((2, 12), np.float32), last=True)


def layer(device: Device, name: str, **settings: Any) -> Any:
    """A layer of Keras."""
    return getattr(importlib.import_module("keras.ipu.layers"), name)(**settings)


def hosted(device: Device, *rest: Any, table: Any = TABLE, **settings: Any) -> Any:
    """A table on the host."""
    table = device.tf.Variable(table) if isinstance(table, np.ndarray) else table
    return device.ipu.embedding_ops.HostEmbedding("table", table, *rest, **settings)


def without_session(device: Device) -> Any:
    """A table of a graph that is registered without a session."""
    with device.tf.Graph().as_default():
        return device.ipu.embedding_ops.create_host_embedding("table", [6, 2], device.tf.float32).register()


def without_scope(device: Device) -> Any:
    """A gradient of what is marked, under a plain tape."""
    x = device.tf.Variable([3.0, -2.0])
    with device.tf.GradientTape() as tape:
        loss = device.ipu.grad_util_ops.capture_upstream_gradients(x * 2, tag="double")
    return tape.gradient(loss, x)


IMAGE, ONES, CHANNELS = np.zeros((2, 2, 3), np.float32), np.ones((2, 3), np.float32), np.zeros((2, 3, 12), np.float32)
FACTORS, EMBEDDING = (np.zeros((6, 9), np.float32), np.zeros((9, 12), np.float32)), {"input_dim": 6, "output_dim": 2}
CTC = {
    "labels": [[1, 2], [2, 2], [0, 1]], "logits": np.zeros((4, 3, 3), np.float32),
    "label_length": [2, 2, 1], "logit_length": [4, 4, 2],
}  # fmt: skip
CALLS: Dict[str, Row] = {
    "an outlined number": ("functional_ops.outlined_function", (3,), TypeError, "function"),
    "a barrier of no tensors": ("control_flow_ops.barrier", ([],), ValueError, "No tensors"),
    **{f"4 rows in {n} pieces": (
        "embedding_ops.embedding_lookup", {"params": TABLE[:4], "ids": [0], "serialization_factor": n},
        ValueError, "serialization_factor") for n in (0, 3)},
    "an image of 4 channels": (
        "image_ops.normalise_image", (IMAGE.repeat(2, 2)[..., :4], ONES[0], ONES[0]), ValueError, "3 channels"),
    "an image of int32": ("image_ops.normalise_image", (IMAGE.astype(np.int32), ONES[0], ONES[0]), ValueError, "int32"),
    "an image with two offsets": (
        "image_ops.normalise_image", (IMAGE, ONES[0, :2], ONES[0]), ValueError, "channel_offsets"),
    **{f"{n} pieces of {dimension}": (
        "math_ops.serialized_matmul", (*FACTORS, n, dimension),
        ValueError, f"`serialization_factor` is {n}",
    ) for n, dimension in ((4, "a_columns"), (0, "b_rows"), (2, "a_rows_b_columns"))},
    "pieces of a_rows": ("math_ops.serialized_matmul", (*FACTORS, 3, "a_rows"), ValueError, "serialization_dimension"),
    "convolutions in a number": ("nn_ops.multi_conv", {"func": 3}, TypeError, "func"),
    "convolutions with a list of options": (
        "nn_ops.multi_conv", {"func": abs, "options": ["planType"]}, TypeError, "options"),
    **{f"the blank {n} of 3 classes": (
        "nn_ops.ctc_loss_v2", {**CTC, "blank_index": n}, ValueError, "blank_index") for n in (3, -4)},
    **{f"12 channels in {n} groups": (
        "normalization_ops.group_norm", {"inputs": CHANNELS, "groups": n},
        ValueError, f"{n} groups") for n in (5, 24, 0)},
    **{f"channels on axis {n} of three": (
        "normalization_ops.layer_norm", {"inputs": CHANNELS, "channels_axis": n},
        ValueError, "channels_axis") for n in (3, -4, 0)},
    **{f"groups of {n} replicas": (
        "cross_replica_ops.cross_replica_sum", (1.0, n), ValueError, "replica_group_size") for n in (0, -2, 1.5, True)},
    "reduce_scatter of two dimensions": (
        "reduce_scatter_op.reduce_scatter", (ONES, 1, "COLLECTIVE_OP_ADD"), ValueError, "vector"),
    "reduce_scatter by add": ("reduce_scatter_op.reduce_scatter", (ONES[0], 1, "add"), ValueError, "COLLECTIVE_OP_ADD"),
    "a table that is no tensor": (hosted, {"table": "table"}, ValueError, "not a tensorflow tensor"),
    "a table with a rate for a specification": (hosted, {"optimizer_spec": 0.5}, ValueError, "optimizer_spec"),
    "a table with a partition by rows": (hosted, ("ROWS",), ValueError, "partition strategy"),
    "a table that is called": (lambda device: hosted(device)(3), (), NotImplementedError, "register"),
    "a table of a graph without a session": (without_session, (), ValueError, "session"),
    "a gradient without a scope": (without_scope, (), RuntimeError, "GradientCaptureTape"),
    **{f"dropout with {name} {n}": ("rand_ops.dropout", {"x": ONES, "rate": 0.5, name: n}, ValueError, name)
       for name, n in (("rate", 1.0), ("rate", -0.5), ("rate", "half"), ("noise_shape", (2,)), ("noise_shape", (1, 2)),
                       ("seed", (1, 2, 3)))},
    "an Embedding that masks": (layer, {"name": "Embedding", **EMBEDDING, "mask_zero": True}, ValueError, "mask_zero"),
    "an Embedding in 4 pieces": (
        layer, {"name": "Embedding", **EMBEDDING, "serialization_factor": 4}, ValueError, "serialization_factor"),
    "an LSTM with recurrent_dropout": (
        layer, {"name": "PopnnLSTM", "units": 3, "recurrent_dropout": 0.5}, ValueError, "recurrent_dropout"),
    "an LSTM without biases": (layer, {"name": "PopnnLSTM", "units": 3, "use_bias": False}, ValueError, "use_bias"),
    "a GRU of Keras with selu": (layer, {"name": "PopnnGRU", "units": 3, "activation": "selu"}, ValueError, "selu"),
    "a SerialDense in pieces of rows": (
        layer, {"name": "SerialDense", "units": 4, "serialization_factor": 2, "serialization_dimension": "rows"},
        ValueError, "rows"),
    "an EffectiveTransformer": (
        layer, {"name": "EffectiveTransformer", "output_layer_size": 4},
        NotImplementedError, "EffectiveTransformer is not available"),
    "an LSTM in float64": ("rnn_ops.PopnnLSTM", {"num_units": 5, "dtype": "float64"}, ValueError, "float64"),
    "a GRU with selu": ("rnn_ops.PopnnGRU", {"num_units": 5, "activation": "selu"}, ValueError, "selu"),
}  # fmt: skip


@pytest.mark.parametrize("what", params(CALLS, ("an EffectiveTransformer",)))
def test_a_call_is_refused(eager: Device, what: str) -> None:
    """What the device does not have, or what cannot be meant, is refused when it is asked for."""
    check_refused(eager, what, CALLS)


OTHER = "given 4 replicas, and the program runs on 2"
PROGRAMS: Dict[str, Row] = {
    "all_gather over 4 of 2 replicas": (on_two, ("all_to_all_op", "all_gather", 4), ValueError, OTHER),
    "all_to_all over 4 of 2 replicas": (on_two, ("all_to_all_op", "all_to_all", 0, 0, 4), ValueError, OTHER),
    "reduce_scatter over 4 of 2 replicas": (on_two, ("reduce_scatter_op", "reduce_scatter", 4), ValueError, OTHER),
}


@pytest.mark.emulator
@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program_is_refused(device: Device, what: str) -> None:
    """The number of replicas in a call is the one that the program runs on."""
    check_refused(device, what, PROGRAMS)
