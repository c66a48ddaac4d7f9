"""Layers around others that capture gradients of activations, which an optimizer is handed where it takes them."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Optional

from ipu_conformance.emulator.tensorflow.keras import library
from ipu_conformance.emulator.tensorflow.run.gradient_capture import capture_upstream_gradients

_Layer: Any = library.module("engine.base_layer").Layer
_activations: Any = library.module("activations")


class _Capturing(_Layer):
    """A layer around another one, named by its tag."""

    def __init__(self, layer: Any, tag: str) -> None:
        super().__init__(name=tag)
        self._layer, self._tag = layer, tag

    @property
    def layer(self) -> Any:
        """The layer inside."""
        return self._layer

    @property
    def tag(self) -> str:
        """The name that captured gradients have."""
        return self._tag

    def build(self, input_shape: Any) -> None:
        """Make the variables of the layer inside."""
        self._layer.build(input_shape)
        super().build(input_shape)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """What the layer inside returns; it is told of training where it asks for it."""
        if "training" not in inspect.signature(self._layer.call).parameters:
            kwargs.pop("training", None)
        return self._layer.call(inputs, *args, **kwargs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the layer inside."""
        return self._layer.compute_output_shape(input_shape)

    def get_config(self) -> Dict[str, Any]:
        """What the layer can be made from again: the class inside and its configuration."""
        inside = {"wrapped_layer_type": type(self._layer), "wrapped_layer_config": self._wrapped_config()}
        return {**super().get_config(), **inside, "tag": self._tag}

    def _wrapped_config(self) -> Dict[str, Any]:
        config: Dict[str, Any] = self._layer.get_config()
        return config

    @classmethod
    def from_config(cls, config: Dict[str, Any]) -> Any:
        """A layer around a new one."""
        inside = config["wrapped_layer_type"].from_config(config["wrapped_layer_config"])
        return cls(inside, tag=config["tag"])


class CaptureUpstreamGradients(_Capturing):
    """Captures the gradient of what the layer inside returns."""

    def __init__(self, layer: Any, tag: Optional[str] = None) -> None:
        _check_layer(layer)
        super().__init__(layer, f"{layer.name}_cug" if tag is None else tag)

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """What the layer inside returns."""
        return capture_upstream_gradients(super().call(inputs, *args, **kwargs), tag=self.tag)


class CaptureActivationGradients(_Capturing):
    """Captures the gradient of what the layer inside puts into each of its activations."""

    def __init__(self, layer: Any, tag: Optional[str] = None) -> None:
        if not self.layer_is_supported(layer):
            raise ValueError(f"{layer.name} has no activation whose gradient could be captured.")
        tag = f"{layer.name}_cag" if tag is None else tag
        self._plain = layer.get_config()
        marked = {name: _marked(self._plain[name], f"{tag}_{name}") for name in _names_of_activations(self._plain)}
        super().__init__(type(layer).from_config({**self._plain, **marked}), tag)

    @staticmethod
    def layer_is_supported(layer: Any) -> bool:
        """Whether a layer has an activation."""
        _check_layer(layer)
        return bool(_names_of_activations(layer.get_config()))

    def _wrapped_config(self) -> Dict[str, Any]:
        return dict(self._plain)


def _check_layer(layer: Any) -> None:
    if not isinstance(layer, _Layer):
        raise ValueError(f"`layer` is {layer!r}; pass a Keras layer.")


def _names_of_activations(config: Dict[str, Any]) -> List[str]:
    def known(value: Any) -> bool:
        try:
            return _activations.deserialize(value) is not None
        except (ValueError, TypeError):
            return False

    return [name for name, value in config.items() if "activation" in name and known(value)]


def _marked(activation: Any, tag: str) -> Any:
    function = _activations.deserialize(activation)
    return lambda inputs: function(capture_upstream_gradients(inputs, tag=tag))
