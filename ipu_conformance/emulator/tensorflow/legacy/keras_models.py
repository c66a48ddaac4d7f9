"""The models of ``ipu.keras`` in SDKs 1.4 to 2.1: programs can name them, and making one says what took their place."""

from __future__ import annotations

from typing import Any, Dict

from ipu_conformance.emulator.tensorflow.surface import unavailable_class

_ACCUMULATION = "set_gradient_accumulation_options"
_INSTEAD = {
    "Model": f"build a Keras model in the scope of an IPUStrategy and call its {_ACCUMULATION}",
    "Sequential": f"build a Keras Sequential model in the scope of an IPUStrategy and call its {_ACCUMULATION}",
    "PipelineModel": "build a Keras model in the scope of an IPUStrategy with PipelineStage scopes",
    "PipelineSequential": "build a Keras Sequential model in the scope of an IPUStrategy with pipeline stages",
}
"""What a program of today does."""

MODELS: Dict[str, Any] = {
    name: unavailable_class(name, f"its steps and runs are those of an earlier SDK; {instead}")
    for name, instead in _INSTEAD.items()
}
