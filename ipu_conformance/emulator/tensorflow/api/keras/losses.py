"""The vendor's Keras losses."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ipu_conformance.emulator.tensorflow.api.ops import nn_ops
from ipu_conformance.emulator.tensorflow.keras import library

__all__ = ["CTCLoss"]

_Layer: Any = library.module("engine.base_layer").Layer


class CTCLoss(_Layer):
    """The loss of connectionist temporal classification, as a layer; see ``nn_ops.ctc_loss_v2``."""

    def __init__(
        self, from_logits: bool = False, blank_index: int = 0, name: Optional[str] = None, **settings: Any
    ) -> None:
        super().__init__(name=name, **settings)
        self.from_logits = from_logits
        self.blank_index = blank_index

    def call(self, labels: Any, data: Any, label_length: Any, data_length: Any, **settings: Any) -> Any:
        """The loss of every sample, of logits or of log probabilities [time, batch, classes]."""
        loss = nn_ops.ctc_loss_v2 if self.from_logits else nn_ops.ctc_loss_with_log_probs
        return loss(labels, data, label_length, data_length, self.blank_index)

    def get_config(self) -> Dict[str, Any]:
        """What the layer can be made from again."""
        return {**super().get_config(), "from_logits": self.from_logits, "blank_index": self.blank_index}
