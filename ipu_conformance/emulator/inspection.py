"""What the emulator shows of its devices beyond the vendors' APIs: plans, traces and the values of each replica.

The inspectors satisfy ``ipu_conformance.targets.Inspector``. They take the vendor's own objects and import no
framework.
"""

from __future__ import annotations

import heapq
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from ipu_conformance.emulator.core.memory import PERSISTENT, VARYING, MemoryEstimate
from ipu_conformance.emulator.core.plan import Plan, Slot, plan
from ipu_conformance.emulator.core.trace import Trace
from ipu_conformance.errors import ConformanceError
from ipu_conformance.ir.graph import Graph
from ipu_conformance.run import RunConfig

ByReplica = Tuple[Dict[str, Any], ...]
Memory = Tuple[Dict[str, int], ...]


class PopTorch:
    """Looks into a ``poptorch.PoplarExecutor``; values have the names of the user's model."""

    def observe(self, program: Any) -> None:
        program._recording = True

    def values_by_replica(self, program: Any, values: Mapping[str, Any], replicas: int) -> ByReplica:
        held = program.compiled.weights.replicas
        return tuple({name: held[replica][value] for name, value in values.items()} for replica in range(replicas))

    def trace(self, program: Any, replicas: int) -> Optional[Tuple[Slot, ...]]:
        return _by_tick(program._trace, replicas)

    def memory(self, program: Any) -> Memory:
        from ipu_conformance.emulator.poptorch.ir import lowering

        return _sizes(lowering.memory_of(program.compiled, program._options))

    def plan(self, config: RunConfig) -> Plan:
        iterations, accumulation = config.device_iterations, config.gradient_accumulation
        return plan(
            _devices(config),
            "sequential" if config.schedule == "sequential" else "popart",
            accumulation if config.training else iterations,
            training=config.training,
            replicas=config.replicas,
            device_iterations=iterations if config.training else 1,
        )

    def ir(self, program: Any) -> Graph:
        from ipu_conformance.emulator.poptorch.ir import lowering

        # PopART's own JSON leaves out the values of constants.
        return lowering.lower(program.compiled, program._options, program.compiled.training)


class Paddle:
    """Looks into the compiled program on the device of the process; values have the names of its variables."""

    def _executable(self) -> Any:
        from ipu_conformance.emulator.paddle.run.device import DEVICE

        return DEVICE.executable

    def observe(self, program: Any) -> None:
        self._executable().tracing = True

    def values_by_replica(self, program: Any, values: Mapping[str, Any], replicas: int) -> ByReplica:
        machine = self._executable().machine
        names = list(values.values())
        held = [machine.read(names, replica) for replica in range(replicas)]
        return tuple({name: own[value] for name, value in values.items()} for own in held)

    def trace(self, program: Any, replicas: int) -> Optional[Tuple[Slot, ...]]:
        return _by_tick(self._executable().last_trace, replicas)

    def memory(self, program: Any) -> Memory:
        from ipu_conformance.emulator.paddle.compile import memory_use

        executable = self._executable()
        pipelined = executable.options.pipelined
        return _sizes(memory_use.estimate(executable.record, executable.plan, pipelined=pipelined))

    def plan(self, config: RunConfig) -> Plan:
        batches, accumulation = config.device_iterations, config.gradient_accumulation
        pipelined = config.number_of_stages > 1 and config.schedule == "grouped"
        # Without accumulation the batches of a step fill the pipeline, and each is updated by on its way.
        streamed = accumulation == 1 and (not config.training or pipelined)
        return plan(
            _devices(config),
            "popart" if pipelined else "sequential",
            batches if streamed else accumulation,
            training=config.training,
            replicas=config.replicas,
            device_iterations=1 if streamed else batches,
            accumulate=not (streamed and config.training),
        )

    def ir(self, program: Any) -> Graph:
        from ipu_conformance.emulator.paddle.ir import lowering

        return lowering.lower(self._executable().record)


class TensorFlow:
    """Looks into a Keras model on several replicas or IPUs, and into variables made in the scope of a strategy."""

    def observe(self, program: Any) -> None:
        program._ipu.observed = True

    def values_by_replica(self, program: Any, values: Mapping[str, Any], replicas: int) -> ByReplica:
        from ipu_conformance.emulator.tensorflow.run.variables import of_replica

        return tuple(
            {name: of_replica(variable, replica).numpy() for name, variable in values.items()}
            for replica in range(replicas)
        )

    def trace(self, program: Any, replicas: int) -> Optional[Tuple[Slot, ...]]:
        last = program._ipu.last_run
        return None if last is None else _by_tick(last.trace, replicas)

    def memory(self, program: Any) -> Optional[Memory]:
        from ipu_conformance.emulator.tensorflow.reports import keras

        last = program._ipu.last_run
        try:
            return None if last is None else _sizes(keras.memory_of(program, last.phase, last.plan, last.element_spec))
        except ConformanceError:
            return None  # a model whose ops the estimate does not know

    def plan(self, config: RunConfig) -> None:
        return None

    def ir(self, program: Any) -> Optional[Callable[[], Graph]]:
        from ipu_conformance.emulator.tensorflow.reports import program as programs

        return programs.of(program)


INSPECTORS: Mapping[str, Any] = {"poptorch": PopTorch, "tensorflow": TensorFlow, "paddle": Paddle}


def _sizes(estimate: MemoryEstimate) -> Memory:
    parts = (*PERSISTENT, *VARYING, "peak")
    return tuple({"ipu": row.ipu, **{part: int(getattr(row, part)) for part in parts}} for row in estimate.ipus)


def _devices(config: RunConfig) -> Tuple[int, ...]:
    return config.devices or tuple(range(config.number_of_stages))


def _by_tick(trace: Optional[Trace], replicas: int) -> Optional[Tuple[Slot, ...]]:
    """The slots of all replicas by tick; merging keeps each replica's order, so a slot out of turn stays visible."""
    if trace is None:
        return None
    return tuple(heapq.merge(*(trace.slots(replica) for replica in range(replicas)), key=lambda slot: slot.tick))
