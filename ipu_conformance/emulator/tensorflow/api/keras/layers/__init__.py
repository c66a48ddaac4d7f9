"""The vendor's Keras layers: those of stock Keras that the device has operations of its own for, and marks."""

from __future__ import annotations

from ipu_conformance.emulator.tensorflow import unavailable
from ipu_conformance.emulator.tensorflow.layers.classification import CTCInferenceLayer, CTCPredictionsLayer
from ipu_conformance.emulator.tensorflow.layers.lookup import Embedding
from ipu_conformance.emulator.tensorflow.layers.marks import AssumeEqualAcrossReplicas, Dropout, RecomputationCheckpoint
from ipu_conformance.emulator.tensorflow.layers.normalization import (
    GroupNorm,
    GroupNormalization,
    InstanceNorm,
    InstanceNormalization,
    LayerNorm,
    LayerNormalization,
)
from ipu_conformance.emulator.tensorflow.layers.products import SerialDense
from ipu_conformance.emulator.tensorflow.layers.recurrent import GRU, LSTM, PopnnGRU, PopnnLSTM

__all__ = [
    "GRU",
    "LSTM",
    "AssumeEqualAcrossReplicas",
    "CTCInferenceLayer",
    "CTCPredictionsLayer",
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

EffectiveTransformer = unavailable.kind(
    "EffectiveTransformer", "its attention over packed sequences is one operation of the vendor's library"
)
