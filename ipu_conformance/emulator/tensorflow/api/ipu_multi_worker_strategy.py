"""The strategy for the workers of a cluster, of which there may be one."""

from __future__ import annotations

from typing import Any

from ipu_conformance.emulator.tensorflow.api.distributed.popdist_strategy import PopDistStrategy
from ipu_conformance.emulator.tensorflow.unavailable import UnavailableError

__all__ = ["IPUMultiWorkerStrategy", "IPUMultiWorkerStrategyV1"]


class IPUMultiWorkerStrategyV1(PopDistStrategy):
    """An IPU strategy whose optimizers add up gradients over all replicas; a cluster of several tasks is refused."""

    def __init__(
        self, cluster_resolver: Any, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False
    ) -> None:
        cluster = cluster_resolver.cluster_spec()
        tasks = sum(cluster.num_tasks(job) for job in cluster.jobs)
        if tasks > 1:
            raise UnavailableError(
                f"{type(self).__name__} was given a cluster of {tasks} tasks, which the emulator cannot let meet: run "
                "one process, whose device has the IPUs of all replicas."
            )
        super().__init__(ipu_device)
        self.variables_on_host = variables_on_host


IPUMultiWorkerStrategy = IPUMultiWorkerStrategyV1
