"""Keras layers: the same objects as ``keras.ipu.layers`` of earlier SDKs had, and those of eight-bit numbers."""

from ipu_conformance.emulator.tensorflow.api.keras.layers import (
    GRU,
    LSTM,
    AssumeEqualAcrossReplicas,
    CTCInferenceLayer,
    CTCPredictionsLayer,
    Dropout,
    EffectiveTransformer,
    Embedding,
    GroupNorm,
    GroupNormalization,
    InstanceNorm,
    InstanceNormalization,
    LayerNorm,
    LayerNormalization,
    PopnnGRU,
    PopnnLSTM,
    RecomputationCheckpoint,
    SerialDense,
)
from ipu_conformance.emulator.tensorflow.api.keras.losses import CTCLoss
from ipu_conformance.emulator.tensorflow.surface import unavailable_class as _unavailable_class

_EIGHT_BITS = "a CPU has no numbers of eight bits with a scale of their own"
ConvertFromF8 = _unavailable_class("ConvertFromF8", _EIGHT_BITS, "dtype='half', **kwargs")
ConvertToF8 = _unavailable_class("ConvertToF8", _EIGHT_BITS, "**kwargs")

__all__ = [
    "GRU",
    "LSTM",
    "AssumeEqualAcrossReplicas",
    "CTCInferenceLayer",
    "CTCLoss",
    "CTCPredictionsLayer",
    "ConvertFromF8",
    "ConvertToF8",
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
