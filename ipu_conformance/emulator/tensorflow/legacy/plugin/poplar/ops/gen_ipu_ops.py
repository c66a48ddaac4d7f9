"""Operations on the device as a whole."""

from ipu_conformance.emulator.tensorflow.legacy.events import ipu_event_trace

__all__ = ["ipu_event_trace"]
