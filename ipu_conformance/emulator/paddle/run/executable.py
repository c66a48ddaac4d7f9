"""A compiled program on the device: its plan, its machine, and the way of weights and rates between host and device."""

from __future__ import annotations

import itertools
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.core.engine import Engine
from ipu_conformance.emulator.core.trace import Recorder, Trace
from ipu_conformance.emulator.paddle import refusals
from ipu_conformance.emulator.paddle.compile import (
    memory_use,
    partition,
    placement,
    precision,
    slot_programs,
    subprograms,
)
from ipu_conformance.emulator.paddle.compile.compilation import MEAN, RUNNING, UNFOLDED_RATE
from ipu_conformance.emulator.paddle.compile.slot_programs import Programs
from ipu_conformance.emulator.paddle.compile.subprograms import TensorSpec
from ipu_conformance.emulator.paddle.errors import InvalidArgument, PopartError
from ipu_conformance.emulator.paddle.optim import device_rules, stage_updates
from ipu_conformance.emulator.paddle.run import random_state, scopes
from ipu_conformance.emulator.paddle.run.feeding import Feeder, Fetcher
from ipu_conformance.emulator.paddle.run.machine import PaddleMachine
from ipu_conformance.emulator.paddle.run.scopes import VariableScope

_POWERS = {"Beta1Pow": "beta1", "Beta2Pow": "beta2"}
_STEPS = "Beta1Pow"
_numbers = itertools.count(1)
_TRAP = re.compile(r"There are NAN or INF .*op=(\w+), tensor=([^,]+),")


class Executable:
    """One compiled program."""

    def __init__(self, record: Any) -> None:
        self.number = next(_numbers)
        self.record = record
        self.strategy = record.strategy
        self.scope = record.scope
        self.options = placement.PlacementOptions.of(record.strategy)
        self.folded = record.optimizer if self.options.training else None
        self.program = slot_programs.seeded(stage_updates.without(record.forward))
        self.placement = placement.place(subprograms.ops_of(self.program), self.options)
        placement.check_order(subprograms.ops_of(self.program), self.placement.stage_of)
        self.plan = placement.plan(self.placement, self.options)
        known = subprograms.variables(self.program)
        self.feeds = {name: TensorSpec.of(_find(known, name, "feed")) for name in record.feeds}
        self.fetches = {name: TensorSpec.of(_find(known, name, "fetch")) for name in record.fetches}
        memory_use.check(record, self.plan, pipelined=self.options.pipelined)
        programs = self._programs()
        self.programs = programs
        self.lasting = self._lasting(known, programs)
        """The variables that live on the device, with their types."""
        layout = self.options.layout
        self.feeder = Feeder(list(self.feeds.values()), layout)
        self.fetcher = Fetcher(layout, replicated=self.options.replicated, accumulating=self.options.accumulating)
        self.machine = PaddleMachine(
            programs, layout.replicas, seed=random_state.base(record.strategy.seed), strategy=record.strategy
        )
        self.engine = Engine(self.plan, self.machine, parallel=layout.replicas > 1 and not self._calls_python())
        self.steps = 0.0
        """How many steps the optimizer had taken when the weights were sent to the device."""
        self._checked = bool(record.strategy.value("enable_floating_point_checks"))
        self.last_trace: Optional[Trace] = None
        self.tracing = False
        self._rates: Tuple[Any, ...] = ()
        self.weights_from_host()

    def _calls_python(self) -> bool:
        """Whether ops call Python functions, as rounding and custom ops do: Paddle crashes if threads do so at once."""
        programs = (self.program, self.record.original)
        rounded = any(precision.halves(program) for program in programs)
        return rounded or any(
            op.type() == subprograms.CALL for program in programs for op in subprograms.ops_of(program)
        )

    def _programs(self) -> Programs:
        record, options, folded, value = self.record, self.options, self.folded, self.strategy.value
        layout = options.layout
        loss_scale = float(value("loss_scaling"))
        stages = partition.cut(
            self.program,
            self.placement.stage_of,
            self.placement.topology.stages,
            feeds=record.feeds,
            fetches=record.fetches,
            loss=record.loss if folded is not None else None,
            trainable=folded.parameters if folded is not None else (),
            loss_scale=loss_scale,
        )
        trained = [weight for stage in stages for weight in stage.gradients]
        owner: Dict[str, int] = {}
        for stage in stages:
            for weight in stage.gradients:
                owner.setdefault(weight, stage.number)
        update = None
        if folded is not None:
            states = {state: weight for weight, slots in folded.states.items() for state in slots.values()}
            self._updating = device_rules.as_on_device(record.original)
            update = stage_updates.split(self._updating, owner, folded.gradients, states, len(stages))
            self._check_continuous(stages, update, trained)
        return Programs(
            stages,
            update,
            raw=folded.gradients if folded is not None else {},
            accumulation=layout.accumulation,
            accumulating=options.accumulating and layout.accumulation > 1,
            replicas=layout.replicas,
            mean=int(value("accumulation_and_replication_reduction_type")) == MEAN,
            running=int(value("mean_accumulation_and_replication_reduction_strategy")) == RUNNING,
            loss_scale=loss_scale,
        )

    def _check_continuous(
        self, stages: Sequence[partition.Stage], update: stage_updates.Updates, trained: Sequence[str]
    ) -> None:
        """Raise PopartError for what needs all stages at once in a pipeline that updates after each micro-batch."""
        if self.plan.accumulate or len(stages) == 1:
            return
        shared = sorted({weight for weight in trained if trained.count(weight) > 1})
        if shared:
            raise PopartError(
                f"The weight {shared[0]} is used by several pipeline stages, which update it at different times: set "
                "enable_gradient_accumulation to True"
            )
        if update.reads_gradients:
            raise PopartError(
                "Clipping by the global norm needs the gradients of all pipeline stages at once: set "
                "enable_gradient_accumulation to True"
            )

    def _lasting(self, known: Mapping[str, Any], programs: Programs) -> Dict[str, TensorSpec]:
        names = {name for stage in programs.stages for name in stage.lasting} | set(programs.updates.lasting)
        names |= {name for name in self.fetches if known[name].persistable()}
        described = {**programs.updates.known, **known}
        return {name: TensorSpec.of(described[name]) for name in sorted(names)}

    # Weights

    def weights_from_host(self) -> None:
        """Send every replica the host's weights and optimizer state."""
        values = {name: _stored(self._host_tensor(name), spec) for name, spec in self.lasting.items()}
        values.update(self._powers(values))
        blank = {name: np.zeros(spec.shape, spec.stored) for name, spec in self.lasting.items()}
        self.machine.load(faults.at("weights.to_device", values, device=blank))
        self._rates = ()

    def weights_to_host(self) -> None:
        """Copy replica 0's weights and optimizer state to the host's scope; training alone changes them."""
        if self.options.training:
            self._bring_home()

    def _bring_home(self) -> None:
        names = [name for name in self.lasting if name not in self.programs.updates.rates]
        values = self.machine.tensors(names)
        values.update(self._step_counts(values))
        values = {name: _returned(value, self.lasting[name]) for name, value in values.items()}
        for powers in self._slots("Beta2Pow"):
            values.pop(powers, None)
        host = VariableScope(self.scope)
        host.copy(faults.at("weights.to_host", values, host={name: host[name] for name in values}))

    def _host_tensor(self, name: str) -> Any:
        variable: Any = self.scope.find_var(name) if self.scope is not None else None
        refusals.INITIALIZED(name=name, variable=variable)
        return variable.get_tensor()

    def _slots(self, slot: str) -> List[str]:
        """The state variables of one slot of the optimizer."""
        if self.folded is None:
            return []
        names = [slots[slot] for slots in self.folded.states.values() if slot in slots]
        return [name for name in names if name in self.lasting]

    def _powers(self, values: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """The powers of the betas that the host's step counts stand for."""
        counted = self._slots(_STEPS)
        self.steps = float(np.array(values[counted[0]]).reshape(-1)[0]) if counted else 0.0
        self.machine.updates = 0
        powers = {}
        for slot, beta in _POWERS.items():
            for name in self._slots(slot) if counted else ():
                power = float(self.folded.settings[beta]) ** (self.steps + 1)  # type: ignore[union-attr]
                powers[name] = np.full_like(np.array(values[name]), power)
        return powers

    def _step_counts(self, values: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """The host's step counts, where Paddle has powers of beta1."""
        count = self.steps + self.machine.updates
        return {name: np.full_like(np.array(values[name]), count) for name in self._slots(_STEPS)}

    # Running

    def run(self, feed: Mapping[str, Any]) -> List[List[Dict[str, np.ndarray]]]:
        """One step on the device: the outputs of every replica's micro-batches."""
        machine = self.machine
        machine.begin(self.feeder.deal(feed))
        if self.folded is not None:
            self._set_rates()
        recorder = Recorder(self.plan.replicas) if self.tracing else None
        try:
            with scopes.in_order(checked=self._checked):
                self.engine.run(machine.inputs, recorder)
            outputs = machine.outputs
        except RuntimeError as error:
            machine.abandon()
            trapped = _trapped(error)
            if trapped is None:
                raise
            raise trapped from error
        finally:
            machine.end()
        if recorder is not None:
            self.last_trace = recorder.trace()
        return outputs

    def fetch(self, name: str, outputs: Sequence[Sequence[Mapping[str, np.ndarray]]]) -> np.ndarray:
        """One fetched variable of a run."""
        return self.fetcher.fetch(name, self.fetches[name].dtype, outputs)

    def _set_rates(self) -> None:
        """Read the learning rate where the host keeps it; evaluation steps with none.

        An optimizer whose rate is not folded keeps the device's own, also in evaluation.
        """
        value, folded = self.strategy.value, self.folded
        evaluating = bool(value("runtime_options.enable_eval"))
        if folded is None or folded.learning_rate is None:
            rates = tuple((name, UNFOLDED_RATE) for name in self.programs.updates.rates)
        elif evaluating:
            refusals.EVALUATED_MOMENTUM(type=folded.type, momentum=folded.settings.get("momentum", 0.0))
            rates = tuple((name, 0.0) for name in self.programs.updates.rates)
        elif value("is_dynamic"):
            rates = tuple((name, float(value("lr"))) for name in self.programs.updates.rates)
        else:
            rates = tuple(
                (name, float(self.scope.find_var(name).get_tensor()._get_float_element(0)))
                for name in self.programs.updates.rates
            )
        if rates != self._rates:
            self._rates = rates
            self.machine.put(
                {name: np.full(self.lasting[name].shape, rate, self.lasting[name].stored) for name, rate in rates}
            )


def _trapped(error: RuntimeError) -> Optional[PopartError]:
    """What the device says where Paddle's check of results has stopped a run, None for other errors."""
    match = _TRAP.search(str(error))
    if match is None:
        return None
    return PopartError(
        f"Floating point exception: op {match.group(1)} made a NaN or an infinity in {match.group(2)}: look for an "
        "overflow, a division by zero or an invalid operation, or turn enable_floating_point_checks off"
    )


def _find(known: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in known:
        raise InvalidArgument(f"The {what} {name} is not a variable of the forward program: name one that it holds")
    return known[name]


def _stored(tensor: Any, spec: TensorSpec) -> Any:
    """A host's tensor as it is sent: float16 is rounded, anything else goes without a copy on the host."""
    return precision.to_device(np.array(tensor), np.float16) if spec.dtype == "float16" else tensor


def _returned(value: Any, spec: TensorSpec) -> Any:
    """A device's tensor or array as the host gets it."""
    return precision.to_host(np.array(value), np.float16) if spec.dtype == "float16" else value
