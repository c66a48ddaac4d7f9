"""The vendor's Keras layers: those of stock Keras that the device has operations of its own for, and marks."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow.api.keras.layers.capture_upstream_gradients import (
    CaptureActivationGradients,
    CaptureUpstreamGradients,
)
from ipu_conformance.emulator.tensorflow.layers.classification import CTCInferenceLayer, CTCPredictionsLayer
from ipu_conformance.emulator.tensorflow.layers.marks import AssumeEqualAcrossReplicas, Dropout, RecomputationCheckpoint
from ipu_conformance.emulator.tensorflow.layers.normalization import (
    GroupNorm,
    GroupNormalization,
    InstanceNorm,
    InstanceNormalization,
    LayerNorm,
    LayerNormalization,
)
from ipu_conformance.emulator.tensorflow.layers.recurrent import GRU, LSTM, PopnnGRU, PopnnLSTM
from ipu_conformance.emulator.tensorflow.layers.serialized import Embedding, SerialDense
from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class

__all__ = [
    "GRU",
    "LSTM",
    "AssumeEqualAcrossReplicas",
    "CTCInferenceLayer",
    "CTCPredictionsLayer",
    "CaptureActivationGradients",
    "CaptureUpstreamGradients",
    "Dropout",
    "EffectiveTransformer",
    "Embedding",
    "GroupNorm",
    "GroupNormalization",
    "InstanceNorm",
    "InstanceNormalization",
    "LayerNorm",
    "LayerNormalization",
    "PopnnGRU",
    "PopnnLSTM",
    "RecomputationCheckpoint",
    "SerialDense",
]

EffectiveTransformer = _unavailable_class(
    "EffectiveTransformer",
    "its attention cuts batches at run time by the lengths of sequences",
    "output_layer_size, max_batch_size, use_scale=False, num_attention_heads=1, attention_head_size=1, "
    "sequences_per_iter=1, qkv_activation=None, attention_dropout_prob=None, output_activation=None, "
    "output_dropout_prob=None, layer_norm_output=True, embedding_initializer='glorot_uniform', "
    "embedding_bias_initializer='zeros', output_initializer='glorot_uniform', output_bias_initializer='zeros', "
    "**kwargs",
    {"build": "input_shapes", "call": "inputs, training=True", "get_config": ""},
)
