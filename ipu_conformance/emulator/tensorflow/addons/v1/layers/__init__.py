"""Recurrent layers of TensorFlow 1: the same objects as in ``ipu_tensorflow_addons.layers``."""

from ipu_conformance.emulator.tensorflow.addons.layers import (
    PopnnAUGRU,
    PopnnDynamicGRU,
    PopnnDynamicLSTM,
    PopnnGRU,
    PopnnLSTM,
)

__all__ = ["PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"]
