"""Hooks of a session that learn from the device while it runs a loop."""

from ipu_conformance.emulator.tensorflow.estimator.hooks import IPULoggingTensorHook

__all__ = ["IPULoggingTensorHook"]
