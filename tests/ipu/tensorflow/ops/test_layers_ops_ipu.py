"""The vendor's Keras layers: values and gradients against the oracle, their configurations and what they refuse."""

from __future__ import annotations

import functools
import importlib
import operator
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle import recurrence
from ipu_conformance.oracle.op import OPS, Term
from ipu_conformance.oracle.tolerance.ops import ULPS

from .operations import DTYPES, as_specified, distinct, kept, run, values, within
from .recurrent_layers import BATCH, SIZE, STEPS, UNITS, compare, sequences, weights

EPSILON = 2.0**-10
LAYERS: Dict[str, Tuple[Dict[str, Any], Tuple[int, ...]]] = {
    "GroupNormalization": ({"groups": 3, "strided_channel_grouping": False}, (2, 4, 6)),
    "InstanceNormalization": ({"center": False}, (2, 4, 6)),
    "LayerNormalization": ({"epsilon": 0.5}, (2, 4, 6)),
    "Dropout": ({"rate": 0.25, "seed": [1, 2]}, (2, 4, 6)),
    "SerialDense": ({"units": 4, "serialization_factor": 2, "serialization_dimension": "kernel_rows"}, (2, 6)),
    "PopnnLSTM": ({"units": 5, "return_sequences": True}, (2, 4, 6)),
    "PopnnGRU": ({"units": 5, "reset_after": True}, (2, 4, 6)),
    "RecomputationCheckpoint": ({}, (2, 6)),
    "AssumeEqualAcrossReplicas": ({"inplace": True}, (2, 6)),
}


@pytest.fixture
def layers(ipu: Any) -> Any:
    """The vendor's module of layers."""
    return importlib.import_module("keras.ipu.layers")


def _built(strategy: Any, kind: Any, shape: Tuple[int, ...], weights: List[np.ndarray], **settings: Any) -> Any:
    with strategy.scope():
        layer = kind(**settings)
        layer.build(shape)
        layer.set_weights(weights)
    return layer


def test_layers_have_two_names(tf: Any, ipu: Any, layers: Any) -> None:
    """The module is that of ``keras.ipu`` and that of the vendor's package; short names are the same classes."""
    vendors = importlib.import_module("tensorflow.python.ipu.keras.layers")
    check.equal(actual=vendors, expected=layers, what="tensorflow.python.ipu.keras.layers")
    for short, long in (("LSTM", "PopnnLSTM"), ("GRU", "PopnnGRU"), ("GroupNorm", "GroupNormalization")):
        check.equal(actual=getattr(layers, short), expected=getattr(layers, long), what=f"layers.{short}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "groups", "strided"),
    [("GroupNormalization", 3, False), ("GroupNormalization", 2, True), ("InstanceNormalization", 6, True)],
    ids=["neighbouring", "strided", "instance"],
)
def test_norms_are_as_specified(
    tf: Any, layers: Any, strategy: Any, name: str, groups: int, strided: bool, dtype: str
) -> None:
    """Values and all gradients are those of the oracle's group norm."""
    x, cotangent = distinct((2, 3, 4, 6), 3, dtype), values((2, 3, 4, 6), 4, dtype=dtype)
    gamma, beta = values([6], 5, 0.5, 2.0, dtype), values([6], 6, dtype=dtype)
    settings = {} if groups == 6 else {"groups": groups, "strided_channel_grouping": strided}
    layer = _built(strategy, getattr(layers, name), x.shape, [beta, gamma], epsilon=EPSILON, dtype=dtype, **settings)
    result = run(tf, strategy, layer, [x], [cotangent], dtype, lambda: [layer.gamma, layer.beta])
    order = np.arange(6).reshape(-1, groups).T.ravel() if strided else np.arange(6)

    def turned(what: str, value: np.ndarray) -> np.ndarray:
        return value[order] if value.ndim == 1 else np.moveaxis(value, -1, 1)[:, order]

    as_specified(
        result, "group_norm", [turned("", x), gamma[order], beta[order]], turned("", cotangent), dtype, turned,
        groups=groups, epsilon=EPSILON,
    )  # fmt: skip


ROWS, MATRIX, IDS = distinct((2, 3, 6), 3), values((9, 12), 2), np.array([[1, 5], [5, 0]])
SPECIFIED: Dict[str, Tuple[str, Dict[str, Any], np.ndarray, List[np.ndarray], str, Dict[str, Any]]] = {
    "normalization": (
        "LayerNormalization", {"epsilon": EPSILON}, ROWS, [values([6], 5, 0.5, 2.0), values([6], 6)],
        "layer_norm", {"axes": 1, "epsilon": EPSILON},
    ),
    **{f"dense-{word}-{dimension}": (
        "SerialDense", {"units": 12, "serialization_factor": 3, "serialization_dimension": dimension},
        values(shape, 1), [MATRIX, values([12], 3)], "linear", {},
    ) for word, shape in (("rows", (6, 9)), ("stacks of rows", (2, 3, 9)))
       for dimension in ("input_columns", "input_rows_kernel_columns", "kernel_rows")},
    **{f"embedding-{factor}": (
        "Embedding", {"input_dim": 6, "output_dim": 4, "serialization_factor": factor},
        IDS, [values((6, 4), 1)], "embedding", {},
    ) for factor in (1, 3)},
}  # fmt: skip


@pytest.mark.parametrize("row", SPECIFIED)
def test_layers_are_as_specified(tf: Any, layers: Any, strategy: Any, row: str) -> None:
    """Every row is normalised on its own; pieces change neither values nor gradients, and rows used twice add up."""
    name, settings, x, held, op, attributes = SPECIFIED[row]
    layer = _built(strategy, getattr(layers, name), x.shape, held, **settings)
    width = (held[-1] if op == "linear" else held[0]).shape[-1]
    cotangent = values((*(x.shape if op == "embedding" else x.shape[:-1]), width), 4)
    result = run(tf, strategy, layer, [x], [cotangent], variables=lambda: list(layer.trainable_weights))

    def turned(what: str, value: np.ndarray) -> np.ndarray:
        return value.T if op == "linear" and what == "1" else value

    inputs = [x, *(turned(str(place), value) for place, value in enumerate(held, 1))]
    as_specified(result, op, inputs, cotangent, turned=turned, **attributes)


@pytest.mark.parametrize("form", ["layer", "operation"])
def test_rows_that_were_looked_up_move_on(tf: Any, ipu: Any, layers: Any, strategy: Any, form: str) -> None:
    """The gradient of a lookup is that of the whole table: with momentum a row moves on, looked up again or not."""
    steps = np.array([[[0, 1]], [[2, 2]], [[1, 3]]])
    layer = _built(strategy, layers.Embedding, steps[0].shape, [np.zeros((4, 1))], input_dim=4, output_dim=1)
    (table,) = layer.trainable_weights
    look = layer if form == "layer" else functools.partial(ipu.embedding_ops.embedding_lookup, table)
    with strategy.scope():
        optimizer = tf.keras.optimizers.legacy.SGD(0.5, momentum=0.5)

        @tf.function
        def step(ids: Any) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(look(ids))
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])

        for ids in steps:
            strategy.run(step, args=(tf.constant(ids, tf.int32),))

    rows, velocities = np.zeros(4), np.zeros(4)
    for ids in steps:
        velocities = 0.5 * velocities - 0.5 * np.bincount(ids.ravel(), minlength=4)
        rows += velocities
    check.identical(actual=table.numpy()[:, 0], expected=rows.astype(np.float32), what="the rows after three steps")


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_for_training(tf: Any, layers: Any, strategy: Any, training: bool) -> None:
    """In training values are dropped at the rate, out of it all pass as they are."""
    x = values((30, 40), 1, 0.5, 2.0)
    layer = layers.Dropout(0.25, seed=(1, 2))
    result = run(tf, strategy, lambda x: layer(x, training=training), [x]).outputs[0]

    if training:
        check.dropout_masks(masks=kept(result, x, 0.25), rate=0.25, axes=(), what="the mask in training")
    else:
        check.identical(actual=result, expected=x.astype(np.float32), what="the values out of training")


@pytest.mark.parametrize("name", ["RecomputationCheckpoint", "AssumeEqualAcrossReplicas"])
def test_marks_change_no_value(tf: Any, layers: Any, strategy: Any, name: str) -> None:
    """What only tells the compiler something passes values and gradients on."""
    x, cotangent = values((2, 3), 1), values((2, 3), 2)
    layer = getattr(layers, name)()
    result = run(tf, strategy, layer, [x], [cotangent])

    check.identical(actual=result.outputs[0], expected=x.astype(np.float32), what="the value")
    check.identical(actual=result.gradients[0], expected=cotangent.astype(np.float32), what="the gradient")


def _gates(array: np.ndarray, order: Tuple[int, ...]) -> np.ndarray:
    """The gates of an array [..., gates * units] in another order."""
    parts = np.split(array, len(order), -1)
    return np.concatenate([parts[place] for place in order], -1)


ADDONS = (
    "AssumeEqualAcrossReplicas", "CTCInferenceLayer", "CTCLoss", "CTCPredictionsLayer", "Dropout",
    "EffectiveTransformer", "Embedding", "GRU", "GroupNorm", "GroupNormalization", "InstanceNorm",
    "InstanceNormalization", "LSTM", "LayerNorm", "LayerNormalization", "PopnnGRU", "PopnnLSTM",
    "RecomputationCheckpoint", "SerialDense",
)  # fmt: skip
RECURRENT = ("PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM")


@pytest.fixture
def addons(tf: Any, ipu: Any) -> Any:
    """The vendor's package of add-ons."""
    return pytest.importorskip("ipu_tensorflow_addons", reason="the vendor's package of add-ons is not installed")


def test_addons_have_their_layers(addons: Any) -> None:
    """The package has the layers of graphcore/ipu_tensorflow_addons, for Keras and without, and its optimizers."""
    wanted = {
        "keras.layers": ADDONS,
        "layers": RECURRENT,
        "v1.layers": RECURRENT,
        "keras.optimizers": ("AdamIpuOptimizer", "IpuOptimizerBase", "LAMBIpuOptimizer", "SGDIpuOptimizer"),
    }
    missing = [
        f"{module}.{name}"
        for module, names in wanted.items()
        for name in names
        if not isinstance(getattr(operator.attrgetter(module)(addons), name, None), type)
    ]

    check.equal(actual=missing, expected=[], what="the names that the add-ons lack")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("keras.layers.rnn", "LSTM"),
        ("keras.layers.dense", "SerialDense"),
        ("keras.layers.f8_convert", "ConvertToF8"),
        ("keras.optimizers.lamb_optimizer", "LAMBIpuOptimizer"),
        ("v1.layers.rnn_ops", "PopnnAUGRU"),
    ],
)
def test_addons_are_found_in_the_vendors_files(addons: Any, module: str, name: str) -> None:
    """A class can be imported from the file that the vendor has it in, and is the one of the package."""
    of_file = getattr(importlib.import_module(f"ipu_tensorflow_addons.{module}"), name, None)
    of_package = getattr(operator.attrgetter(module.rpartition(".")[0])(addons), name, of_file)

    check.holds(isinstance(of_file, type), f"{module} of the add-ons has no class {name}")
    check.equal(actual=of_file, expected=of_package, what=f"{name} of {module}")


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_addons_are_as_specified(tf: Any, addons: Any, strategy: Any, name: str) -> None:
    """The recurrent layers of the add-ons compute what those of ``keras.ipu`` compute."""
    layers = addons.keras.layers
    test_recurrent_layers_are_as_specified(tf, layers, strategy, f"Popnn{name}")
    short, long = getattr(layers, name), getattr(layers, f"Popnn{name}")
    check.equal(actual=short, expected=long, what=f"the class behind {name}")


@pytest.mark.parametrize("name", ["PopnnLSTM", "PopnnGRU"])
def test_recurrent_layers_are_as_specified(tf: Any, layers: Any, strategy: Any, name: str) -> None:
    """Weights are laid out as Keras has them, batches come first, and gradients flow to everything."""
    lstm = name == "PopnnLSTM"
    order, states = ((1, 0, 2, 3), 2) if lstm else ((1, 0, 2), 1)  # Keras has its first two gates the other way round
    kernel, biases = weights(len(order))
    arrays = [_gates(part, order) for part in (kernel[:SIZE], kernel[SIZE:], biases.ravel())]
    layer = _built(
        strategy, getattr(layers, name), (BATCH, STEPS, SIZE), arrays,
        units=UNITS, return_sequences=True, return_state=True,
    )  # fmt: skip
    fed = sequences(states)

    def call(x: Any, *begin: Any) -> Any:
        result, *end = layer(tf.transpose(x, (1, 0, 2)), initial_state=list(begin)[::-1])  # Keras: h before c
        return [tf.transpose(result, (1, 0, 2)), *end[::-1]]

    result = run(
        tf, strategy, call, [fed.inputs, *fed.states], [fed.of_outputs, *fed.of_states],
        variables=lambda: list(layer.trainable_weights),
    )  # fmt: skip
    words = ["the cell state", "the state"] if lstm else ["the state"]
    record = dict(zip(["the outputs", *words], result.outputs))
    record.update(zip([f"the gradient of {word}" for word in ("the inputs", *words)], result.gradients))
    of_inputs, of_state, of_biases = (_gates(np.asarray(part), order) for part in result.gradients[-3:])
    record["the gradient of the kernel"] = np.concatenate([of_inputs, of_state])
    record["the gradient of the biases"] = of_biases.reshape(biases.shape)

    compare(record, functools.partial(recurrence.lstm if lstm else recurrence.gru, kernel, biases, fed))


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_made_again_from_its_configuration(tf: Any, layers: Any, strategy: Any, name: str) -> None:
    """A layer of the same configuration and weights gives the same values."""
    settings, shape = LAYERS[name]
    x = tf.constant(values(shape, 1), tf.float32)
    with strategy.scope():
        first = getattr(layers, name)(**settings)
        first.build(shape)
        second = type(first).from_config(first.get_config())
        second.build(shape)
        second.set_weights(first.get_weights())
    one, two = (run(tf, strategy, lambda x, layer=layer: layer(x), [x]).outputs[0] for layer in (first, second))

    check.identical(actual=two, expected=one, what=f"a {name} made again")
    config = second.get_config()
    check.equal(actual={key: config.get(key) for key in settings}, expected=settings, what=f"the settings of a {name}")


def test_the_best_path_is_predicted(tf: Any, layers: Any, strategy: Any) -> None:
    """A certain alignment a a blank a b reads a a b, and is filled up with blanks."""
    alignment = [1, 1, 0, 1, 2]
    x = np.full((5, 1, 3), -8.0)
    x[np.arange(5), 0, alignment] = 8.0
    layer = layers.CTCPredictionsLayer(from_logits=True, top_paths=2)
    result = run(tf, strategy, layer, [x, np.array([5])])

    check.equal(actual=result.outputs[0].tolist(), expected=[[1, 1, 2, 0, 0]], what="the best path")


@pytest.mark.parametrize("from_logits", [True, False])
def test_the_loss_layer_takes_logits_or_logarithms(tf: Any, ipu: Any, strategy: Any, from_logits: bool) -> None:
    """With one step and one label there is one alignment, so that the loss is minus the logarithm of its label."""
    x, labels = values((1, 2, 3), 1, -3.0, -1.0), np.array([[1], [2]])
    layer = importlib.import_module("keras.ipu.losses").CTCLoss(from_logits=from_logits)
    result = run(tf, strategy, lambda x, labels, ones: layer(labels, x, ones, ones), [x, labels, np.array([1, 1])])
    logs = np.asarray(OPS["log_softmax"].forward(x, axis=-1)) if from_logits else x
    expected = -logs[0, [0, 1], labels[:, 0]]

    # Logarithms of sums of exponentials come in, and may come and go, each relative to the largest number there is.
    size = np.full(2, 1.0 + np.abs(x).max() + np.abs(logs).max())
    ulps = 2 * (ULPS["exp"] + ULPS["log"]) + ULPS["divide"] + 0.5
    within(result.outputs[0], expected, [Term(size, length=2, ulps=ulps)], "the loss of the layer")
