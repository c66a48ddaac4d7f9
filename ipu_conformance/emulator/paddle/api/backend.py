"""``core.IpuBackend``: the vendor's names for the device of a process."""

from __future__ import annotations

from typing import Optional

from ipu_conformance.emulator.paddle.run.device import DEVICE


class IpuBackend:
    """What Paddle's own Python classes call."""

    _instance: Optional[IpuBackend] = None

    set_scope = staticmethod(DEVICE.set_scope)
    set_ipu_strategy = staticmethod(DEVICE.set_ipu_strategy)
    weights_to_host = staticmethod(DEVICE.weights_to_host)
    detach = staticmethod(DEVICE.detach)
    reset = staticmethod(DEVICE.reset)
    save_model_proto = staticmethod(DEVICE.save_model_proto)

    @classmethod
    def get_instance(cls) -> IpuBackend:
        """The one backend of the process."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance
