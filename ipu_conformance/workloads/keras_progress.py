"""A bar for each epoch of a fit, and a line when it ends."""

from __future__ import annotations

import sys
from typing import Any, Callable, Mapping, Optional

import tensorflow as tf
from tqdm import tqdm


class Progress(tf.keras.callbacks.Callback):
    """Bars on stderr move on with every execution; lines with an epoch's loss and accuracy go to ``say``."""

    def __init__(self, epochs: int, steps: int, *, bars: bool, say: Callable[[str], None]) -> None:
        super().__init__()
        self._epochs, self._steps, self._bars, self._say = epochs, steps, bars, say
        self._bar: Optional[tqdm] = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        title = f"Epoch {epoch + 1}/{self._epochs}"
        self._bar = tqdm(desc=title, total=self._steps, disable=not self._bars, file=sys.stderr, unit="step")

    def on_train_batch_end(self, batch: int, logs: Optional[Mapping[str, float]] = None) -> None:
        assert self._bar is not None
        self._bar.set_postfix_str(_shown(logs or {}), refresh=False)
        # An execution of several steps is seen once, with the number of its last step.
        self._bar.update(batch + 1 - self._bar.n)

    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, float]] = None) -> None:
        assert self._bar is not None
        self._bar.close()
        self._say(f"Epoch {epoch + 1}/{self._epochs}, {_shown(logs or {})}")


def _shown(logs: Mapping[str, float]) -> str:
    recognised = f", accuracy {100 * logs['accuracy']:.2f}%" if "accuracy" in logs else ""
    return f"loss {logs['loss']:.4f}{recognised}"
