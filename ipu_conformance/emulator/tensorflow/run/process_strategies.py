"""The strategies for several processes. The emulator runs one, whose replicas reduce what programs ask for."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional, Tuple

from tensorflow.python.distribute import reduce_util

from ipu_conformance.emulator.tensorflow.config import system
from ipu_conformance.emulator.tensorflow.config.ipu_config import IPUConfig
from ipu_conformance.emulator.tensorflow.run import collectives, replicas
from ipu_conformance.emulator.tensorflow.run.strategy import IPUExtendedV1, IPUStrategyV1
from ipu_conformance.emulator.tensorflow.surface import UnavailableError

COUNTS = ("POPDIST_NUM_INSTANCES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""The environment variables in which launchers give the number of processes."""


def check_alone(what: str) -> None:
    """Refuse to run as one of several processes: each would train without the others."""
    for name in COUNTS:
        given = os.environ.get(name, "1")
        if given.strip() != "1":
            raise UnavailableError(
                f"{what} is one of {given} processes by {name}, which the emulator cannot let meet: run one process, "
                "whose device has the IPUs of all replicas."
            )


class PopDistStrategy(IPUStrategyV1):
    """An IPU strategy whose optimizers add up gradients over all replicas of what ``run`` compiles."""

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        check_alone(type(self).__name__)
        super().__init__(ipu_device, "/device:CPU:0", enable_dataset_iterators, enable_keras_extensions)
        self._extended = PopDistExtendedV1(self, None, ipu_device, add_ipu_cross_replica_reductions)

    def update_ipu_config(self, config: Any) -> None:
        """Enter in a configuration which process this is: the first of one."""
        if not isinstance(config, IPUConfig):
            raise TypeError(f"`config` is {config!r} of type {type(config).__name__}; pass an IPUConfig.")
        config.experimental.multi_replica_distribution.process_count = 1
        config.experimental.multi_replica_distribution.process_index = 0

    def run(
        self, fn: Callable[..., Any], args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None,
        options: Any = None,
    ) -> Any:  # fmt: skip
        """Run ``fn`` on every replica; reductions that it asks the strategy for reach all of them."""
        self.extended.running += 1
        try:
            return super().run(fn, args, kwargs, options)
        finally:
            self.extended.running -= 1


class PopDistExtendedV1(IPUExtendedV1):
    """What the strategy delegates to: as for one device, and reductions across replicas."""

    def __init__(
        self,
        container_strategy: IPUStrategyV1,
        cluster_resolver: Any,
        ipu_device: str,
        add_ipu_cross_replica_reductions: bool,
    ) -> None:
        super().__init__(container_strategy, ipu_device, "/device:CPU:0")
        self.running = 0
        """How many calls of ``run`` are under way; a Keras model reduces gradients itself."""
        self._reductions = add_ipu_cross_replica_reductions

    def read_var(self, var: Any) -> Any:
        """The value of a variable on the replica that asks."""
        return super().read_var(var)

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if not self._reductions:
            return value
        if replicas.inside():
            mean = reduce_op == reduce_util.ReduceOp.MEAN
            reduce = collectives.MEAN if mean else collectives.SUM
            return collectives.all_reduce(value, reduce) if self.running else value
        if not self.running and system.configured() and system.ipus(self.device_ordinal) > 1:
            raise UnavailableError(
                f"{type(self._container_strategy()).__name__}.reduce was called outside of `run`, where only the first "
                "replica's value is left: reduce inside of the function, with cross_replica_ops or the replica context."
            )
        return value


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


class IPUHorovodStrategyV1(PopDistStrategy):
    """An IPU strategy whose optimizers add up gradients over all replicas."""


IPUHorovodStrategy = IPUHorovodStrategyV1
