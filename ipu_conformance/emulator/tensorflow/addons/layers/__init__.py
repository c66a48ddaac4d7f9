"""Recurrent layers for programs without Keras: the same objects as in ``ipu.rnn_ops``."""

from ipu_conformance.emulator.tensorflow.api.ops.rnn_ops import (
    PopnnAUGRU,
    PopnnDynamicGRU,
    PopnnDynamicLSTM,
    PopnnGRU,
    PopnnLSTM,
)

__all__ = ["PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"]
