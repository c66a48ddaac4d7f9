"""Connectionist temporal classification: its loss, and decoding by a beam search over label sequences."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.ops import ctc

_Layer: Any = library.module("engine.base_layer").Layer


class CTCLoss(library.Configured, _Layer):
    """The loss of connectionist temporal classification, as a layer; see ``ctc.ctc_loss_v2``."""

    CONFIG = ("from_logits", "blank_index")

    def __init__(
        self, from_logits: bool = False, blank_index: int = 0, name: Optional[str] = None, **settings: Any
    ) -> None:
        super().__init__(name=name, **settings)
        self.from_logits = from_logits
        self.blank_index = blank_index

    def call(self, labels: Any, data: Any, label_length: Any, data_length: Any, **settings: Any) -> Any:
        """The loss of every sample, of logits or of log probabilities [time, batch, classes]."""
        loss = ctc.ctc_loss_v2 if self.from_logits else ctc.ctc_loss_with_log_probs
        return loss(labels, data, label_length, data_length, self.blank_index)


class CTCInferenceLayer(library.Configured, _Layer):
    """The most probable label sequences of values [time, batch, classes]; see ``ctc.ctc_beam_search_decoder``."""

    CONFIG = ("blank_index", "beam_width", "top_paths", "from_logits")

    def __init__(
        self,
        blank_index: int = 0,
        beam_width: int = 100,
        top_paths: int = 1,
        from_logits: bool = False,
        name: Optional[str] = None,
        **settings: Any,
    ) -> None:
        super().__init__(name=name, **settings)
        self.blank_index = blank_index
        self.beam_width = beam_width
        self.top_paths = top_paths
        self.from_logits = from_logits

    def call(self, data: Any, data_length: Any, **settings: Any) -> Tuple[Any, Any, Any]:
        """Minus the log probabilities, the lengths and the labels of the paths."""
        decode = ctc.ctc_beam_search_decoder if self.from_logits else ctc.ctc_beam_search_decoder_with_log_probs
        return decode(data, data_length, self.beam_width, self.top_paths, self.blank_index)


class CTCPredictionsLayer(CTCInferenceLayer):
    """The labels of the most probable sequence [batch, time], filled up with blanks."""

    def call(self, data: Any, data_length: Any, **settings: Any) -> Any:
        """The labels of the best path of every sample."""
        scores, _, labels = super().call(data, data_length)
        return tf.gather(labels, best_path(scores), axis=1, batch_dims=1)


def best_path(scores: Any) -> Any:
    """The number of every sample's most probable path, by minus their log probabilities [batch, paths]."""
    return tf.argmin(scores, axis=1)
