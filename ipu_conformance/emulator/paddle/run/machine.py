"""Executes stages with Paddle's own CPU kernels: every replica has a scope with its weights, gradients and state."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
from paddle.base import core

from ipu_conformance.emulator import faults
from ipu_conformance.emulator.paddle.compile import precision
from ipu_conformance.emulator.paddle.compile.slot_programs import Key, Programs, fresh_name, held_name
from ipu_conformance.emulator.paddle.run import random_state, scopes
from ipu_conformance.emulator.paddle.run.scopes import BoundProgram, VariableScope

Arrays = Dict[str, np.ndarray]


class PaddleMachine:
    """The machine behind ``emulator.execute``'s engine, on Paddle's tensors."""

    def __init__(self, programs: Programs, replicas: int, *, seed: int = 0, strategy: Any) -> None:
        self.programs = programs
        self.stages = programs.stages
        self.divisor = programs.divisor
        self.seed = seed
        self.runs = 0
        self.updates = 0
        """How many steps the optimizer has taken on this device."""
        self.inputs: Sequence[Sequence[Arrays]] = ()
        self.outputs: List[List[Arrays]] = []
        self._strategy = strategy
        self._scopes = [VariableScope(core.Scope()) for _ in range(replicas)]
        self._meeting = VariableScope(core.Scope())
        self._programs: Dict[Tuple[int, Key], BoundProgram] = {}
        held = [scope.scope for scope in (*self._scopes, self._meeting)]
        # At exit Paddle frees its scopes by itself.
        weakref.finalize(self, scopes.release, self._programs, held).atexit = False  # type: ignore[misc]
        self._updated = [0 for _ in range(replicas)]
        self._counts: List[Dict[int, int]] = [{} for _ in range(replicas)]
        self._last = len(self.stages) - 1

    # Weights

    def load(self, values: Mapping[str, Any]) -> None:
        """Give every replica its copy of the weights, the state and the learning rates."""
        for scope in self._scopes:
            scope.copy(values)
        self.abandon()

    def read(self, names: Sequence[str], replica: int = 0) -> Arrays:
        """Copies of variables of one replica."""
        return {name: np.array(self._scopes[replica][name]) for name in names}

    def tensors(self, names: Sequence[str], replica: int = 0) -> Dict[str, Any]:
        """Variables of one replica, which the next run changes."""
        return {name: self._scopes[replica][name] for name in names}

    def put(self, values: Mapping[str, np.ndarray]) -> None:
        """Set variables of all replicas."""
        for scope in self._scopes:
            scope.put(values)

    # One run

    def begin(self, inputs: Sequence[Sequence[Arrays]]) -> None:
        """Take the arrays of every replica's micro-batches for the next run."""
        self.inputs = inputs
        self.outputs = [[{} for _ in micro_batches] for micro_batches in inputs]
        self.runs += 1

    def end(self) -> None:
        """Release the inputs and outputs of the run."""
        self.inputs, self.outputs = (), []

    def abandon(self) -> None:
        """Forget the gradients of an update that was not reached: the next run starts from zero."""
        self.put(self.programs.empty_accumulators())
        self._updated = [0 for _ in self._scopes]
        self._counts = [{} for _ in self._scopes]

    def forward(self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool) -> Tuple[Any, Any]:
        """Run one stage; the last one goes backwards in the same run."""
        stage_program, scope = self.stages[stage], self._scopes[replica]
        if stage_program.received:
            scope.put(boundary)
        self._feed(stage_program, replica, micro_batch, scope)
        merged = keep and stage == self._last
        if merged:
            self._before_backward(replica, stage)
        self._forward(replica, micro_batch, Key("together" if merged else "keep" if keep else "forward", stage))
        if stage_program.fetches:
            outputs = self.outputs[replica][micro_batch]
            for name in stage_program.fetches:
                outputs[name] = np.array(scope[name])
        # What is handed on may be needed backwards as well: both are views of the same memory.
        handed = _shared(scope, stage_program.handed)
        stash: Any = None
        if merged:
            stash = _Sent(self._sent(stage_program, scope))
        elif keep:
            stash = scope.take(stage_program.stash)
        scope.clear(stage_program.handed)
        scope.clear(stage_program.received)
        return handed, stash

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        """Run the stage again for what backward needs; statistics that it moves are put back."""
        stage_program, scope = self.stages[stage], self._scopes[replica]
        before = self.read(stage_program.moving, replica)
        if stage_program.received:
            scope.put(boundary)
        self._feed(stage_program, replica, micro_batch, scope)
        self._forward(replica, micro_batch, Key("keep", stage))
        scope.put(before)
        stash = scope.take(stage_program.stash)
        scope.clear(stage_program.handed)
        scope.clear(stage_program.received)
        return stash

    def _forward(self, replica: int, micro_batch: int, key: Key) -> None:
        if not self.programs.draws[key.stage]:
            self._bound(replica, key).run()
            return
        with random_state.generator(random_state.number(self.seed, self.runs, replica, micro_batch, -1 - key.stage)):
            self._bound(replica, key).run()

    def _feed(self, stage_program: Any, replica: int, micro_batch: int, scope: VariableScope) -> None:
        if stage_program.feeds:
            arrays = self.inputs[replica][micro_batch]
            for name in stage_program.feeds:
                scope[name].set(arrays[name], _CPU)
        for name in self.programs.seeds[stage_program.number]:
            scope[name].set(random_state.value(self.seed, self.runs, replica, micro_batch, name), _CPU)

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        """Accumulate the gradients of the stage's weights; return those of what it received."""
        stage_program, scope = self.stages[stage], self._scopes[replica]
        if isinstance(stash, _Sent):
            return stash.gradients
        scope.put(stash)
        if gradient is not None:
            scope.put({stage_program.incoming[name]: value for name, value in gradient.items()})
        self._before_backward(replica, stage)
        if stage_program.backward:
            self._bound(replica, Key("backward", stage)).run()
        # What a stage passes on goes back in the variable in which it came.
        sent = self._sent(stage_program, scope)
        scope.clear(stage_program.stash)
        scope.clear(stage_program.incoming.values())
        return sent

    @staticmethod
    def _sent(stage_program: Any, scope: VariableScope) -> Dict[str, Any]:
        """The gradients that backward has left for the stage before, moved out of the scope."""
        sent = scope.take(stage_program.outgoing.values())
        return {name: sent[variable] for name, variable in stage_program.outgoing.items()}

    def _before_backward(self, replica: int, stage: int) -> None:
        """Say by how much a running mean counts what it holds and what comes."""
        if self.programs.running:
            count = self._counts[replica].get(stage, 0)
            self._counts[replica][stage] = count + 1
            held, fresh = self.programs.shares(count)
            self._scopes[replica].put({held_name(stage): held, fresh_name(stage): fresh})

    # Updates

    def gradients(self, replica: int, stage: int) -> Dict[str, Any]:
        """What was accumulated for the weights that the stage owns."""
        scope, sources = self._scopes[replica], self.programs.sources[stage]
        return {weight: scope[name] for weight, name in sources.items()}

    def reduce(self, stage: int, gradients: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """The sum over the replicas in their order; all share the same memory. Dividing is part of the update."""
        if len(gradients) == 1 or not gradients[0]:
            return gradients
        for replica, tensors in enumerate(gradients):
            self._meeting.put({self.programs.met(weight, replica): tensor for weight, tensor in tensors.items()})
        self._bound(_MEETING, Key("reduce", stage)).run()
        sums = self._meeting.take([self.programs.reduced(weight) for weight in gradients[0]])
        # Updates read the sums alone: the gradients are released before updates take memory, except accumulated ones.
        self._meeting.clear(
            self.programs.met(weight, replica) for replica, tensors in enumerate(gradients) for weight in tensors
        )
        for scope in self._scopes:
            scope.clear(self._passing(stage))
            scope.put(sums)
        return [{} for _ in gradients]

    def update(self, replica: int, stage: int, gradients: Any) -> None:
        """One step of the optimizer on the weights that the stage owns."""
        sources = self.programs.sources[stage]
        self._scopes[replica].put({sources[weight]: gradient for weight, gradient in gradients.items()})
        if self._updated[replica] == 0 and self.programs.updates.before:
            self._bound(replica, Key("before", 0)).run()
        self._bound(replica, Key("update", stage)).run()
        self._scopes[replica].clear(self._passing(stage))
        self._counts[replica].pop(stage, None)
        self._updated[replica] += 1
        if self._updated[replica] == len(self.stages):
            self._updated[replica] = 0
            if replica == 0:
                self.updates += 1

    def _passing(self, stage: int) -> List[str]:
        """The variables of gradients that are made anew for every update."""
        sources = self.programs.sources[stage]
        return [name for weight, name in sources.items() if weight not in self.programs.accumulated]

    def weights(self, replica: int, stage: int) -> Arrays:
        """Copies of the weights that the stage owns."""
        return self.read(list(self.programs.sources[stage]), replica)

    def set_weights(self, replica: int, stage: int, weights: Mapping[str, Any]) -> None:
        """Replace weights that the stage owns."""
        self._scopes[replica].put({name: np.asarray(value) for name, value in weights.items()})

    def _bound(self, replica: int, key: Key) -> BoundProgram:
        bound = self._programs.get((replica, key))
        if bound is None:
            scope = (self._meeting if replica == _MEETING else self._scopes[replica]).scope
            program = faults.at("paddle.ops", self.programs.program(key))
            bound = self._programs[replica, key] = BoundProgram(precision.realise(program, self._strategy), scope)
        return bound


class _Sent(NamedTuple):
    """The stash of a stage that has gone backwards already: what it sends back."""

    gradients: Mapping[str, Any]


_CPU = core.CPUPlace()
_MEETING = -1


def _shared(scope: VariableScope, names: Sequence[str]) -> Dict[str, Any]:
    """Views of tensors of a scope."""
    views = {}
    for name in names:
        views[name] = core.LoDTensor()
        views[name]._share_data_with(scope[name])
    return views
