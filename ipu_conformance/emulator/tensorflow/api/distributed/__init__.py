"""Training in several processes of the host: one process of the emulator has all replicas."""

from ipu_conformance.emulator.tensorflow.surface import lazy as _lazy

__getattr__, __dir__ = _lazy(
    __name__, members=dict.fromkeys(("allgather", "allreduce", "broadcast"), "host_collective_ops")
)
