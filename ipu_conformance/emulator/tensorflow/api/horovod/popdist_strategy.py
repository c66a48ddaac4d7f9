"""The strategy of several processes under its earlier name."""

from ipu_conformance.emulator.tensorflow.run.process_strategies import PopDistStrategy

__all__ = ["PopDistStrategy"]
