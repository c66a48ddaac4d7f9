"""The programs that a compiled program consists of: what each kind of slot runs, put together when it is first run."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from paddle.base import core

from ipu_conformance.emulator.paddle.compile import subprograms
from ipu_conformance.emulator.paddle.compile.partition import Stage
from ipu_conformance.emulator.paddle.compile.subprograms import TensorSpec
from ipu_conformance.emulator.paddle.optim import stage_updates

ACCUMULATED = "@ACCUMULATED"
REDUCED = "@REDUCED"
_FRESH_SHARE = "@SHARE"
SEED = "@SEED@"
"""What the name of the variable begins with that holds a dropout's seed."""
_DRAWING = frozenset({"uniform_random", "gaussian_random", "truncated_gaussian_random", "randint", "bernoulli"})


def seeded(program: Any) -> Any:
    """A copy of a program whose dropouts read their seeds from variables."""
    desc = core.ProgramDesc(program.desc)
    block = desc.block(0)
    for number, op in enumerate(_dropouts(block)):
        var = subprograms.new_variable(block, f"{SEED}{number}", core.VarDesc.VarType.INT32, [1])
        var.set_stop_gradient(True)
        op.set_input("Seed", [var.name()])
    return subprograms.Described(desc)


def _dropouts(block: Any) -> List[Any]:
    return [op for op in map(block.op, range(block.op_size())) if op.type() == "dropout" and not op.attr("is_test")]


def seeds_of(ops: Any) -> List[str]:
    """The variables from which ops read their seeds."""
    return sorted(name for name in subprograms.touched(ops) if name.startswith(SEED))


def draws(ops: Any) -> bool:
    """Whether ops draw from Paddle's one generator."""
    return any(op.type() in _DRAWING for op in ops)


class Key(NamedTuple):
    """Which program: forward, keep (forward whose inner values stay), backward, together, before, update, reduce.

    ``together`` is a stage's forward and backward in one.
    """

    kind: str
    stage: int


def held_name(stage: int) -> str:
    """The variable by which a running mean weighs what it holds."""
    return f"@HELD@{stage}"


def fresh_name(stage: int) -> str:
    """The variable by which a running mean weighs what comes."""
    return f"@FRESH@{stage}"


class Programs:
    """Makes the program of every key from the stages and the update of one compilation."""

    def __init__(
        self,
        stages: Sequence[Stage],
        update: Optional[stage_updates.Updates],
        *,
        raw: Mapping[str, str],
        accumulation: int = 1,
        accumulating: bool = False,
        replicas: int = 1,
        mean: bool = True,
        running: bool = False,
        loss_scale: float = 1.0,
    ) -> None:
        self.stages = list(stages)
        self.raw = dict(raw)
        """For each weight the gradient that the update reads."""
        self.running = running and mean and accumulating
        self.replicas = replicas
        shares = (replicas if mean else 1) * (accumulation if mean and not self.running else 1)
        self.divisor = float(shares)
        self._scale = 1.0 / (shares * loss_scale)
        self._scratch = subprograms.Scratch()
        self.updates = update or stage_updates.NONE
        self._made = {weight: name for stage in stages for weight, name in stage.gradients.items()}
        uses: Dict[str, List[int]] = {}
        for stage in stages:
            for weight in stage.gradients:
                uses.setdefault(weight, []).append(stage.number)
        self.owner = {weight: min(numbers) for weight, numbers in uses.items()}
        # A weight that several stages use adds up their gradients, even where nothing else is accumulated.
        self.accumulated = [weight for weight, numbers in uses.items() if accumulating or len(numbers) > 1]
        self.sources = [
            {
                weight: weight + ACCUMULATED if weight in self.accumulated else self._made[weight]
                for weight, owner in self.owner.items()
                if owner == stage.number
            }
            for stage in stages
        ]
        self.seeds = [seeds_of(stage.forward) for stage in stages]
        self.draws = [draws(stage.forward) for stage in stages]

    def met(self, weight: str, replica: int) -> str:
        """The variable in which replicas meet with one replica's gradient."""
        return f"{weight}@{replica}"

    def reduced(self, weight: str) -> str:
        """The variable that holds the sum over the replicas."""
        return weight + REDUCED

    def shares(self, count: int) -> Tuple[np.ndarray, np.ndarray]:
        """By what a running mean of ``count`` micro-batches is multiplied, and the next gradient, when it comes."""
        return np.array([count / (count + 1)], np.float32), np.array([1 / (count + 1)], np.float32)

    def empty_accumulators(self) -> Dict[str, np.ndarray]:
        """Zeros for all that is accumulated."""
        accumulators = {}
        for weight in self.accumulated:
            like = TensorSpec.of(self._gradient(self.owner[weight], weight))
            accumulators[weight + ACCUMULATED] = np.zeros(like.shape, like.stored)
        return accumulators

    def program(self, key: Key) -> Any:
        """The program of a key."""
        ops, kept = getattr(self, "_" + key.kind)(key)
        known = {**self.updates.known, **self.stages[key.stage].known, **self._scratch.known}
        return subprograms.assemble(ops, known, kept)

    def _entering(self, stage: Stage) -> List[str]:
        return [*stage.feeds, *stage.received, *stage.lasting, *self.seeds[stage.number]]

    def _forward(self, key: Key) -> Tuple[List[Any], List[str]]:
        stage = self.stages[key.stage]
        return list(stage.forward), [*self._entering(stage), *stage.handed, *stage.fetches]

    def _keep(self, key: Key) -> Tuple[List[Any], List[str]]:
        ops, kept = self._forward(key)
        return ops, [*kept, *self.stages[key.stage].stash, *self.stages[key.stage].shapes]

    def _backward(self, key: Key) -> Tuple[List[Any], List[str]]:
        stage = self.stages[key.stage]
        ops = [*stage.backward, *self._accumulation(stage)]
        kept = [*stage.stash, *stage.shapes, *stage.lasting, *stage.incoming.values(), *stage.outgoing.values()]
        return ops, [*kept, *self._kept_gradients(stage)]

    def _kept_gradients(self, stage: Stage) -> Iterable[str]:
        for weight, name in stage.gradients.items():
            yield weight + ACCUMULATED if weight in self.accumulated else name
        yield held_name(stage.number)
        yield fresh_name(stage.number)

    def _accumulation(self, stage: Stage) -> List[Any]:
        """The ops that fold a stage's gradients into what is accumulated."""
        ops = []
        scratch = self._scratch
        for weight, fresh in stage.gradients.items():
            if weight not in self.accumulated:
                continue
            like = stage.known[fresh]
            total = scratch.variable(weight + ACCUMULATED, like)
            if self.running:
                share = scratch.variable(fresh + _FRESH_SHARE, like)
                held, new = (scratch.number(name(stage.number)) for name in (held_name, fresh_name))
                ops.append(scratch.op("scale", {"X": [total], "ScaleTensor": [held]}, total))
                ops.append(scratch.op("scale", {"X": [fresh], "ScaleTensor": [new]}, share))
                fresh = share
            ops.append(scratch.op("sum", {"X": [total, fresh]}, total))
        return ops

    def _together(self, key: Key) -> Tuple[List[Any], List[str]]:
        forward, entering = self._forward(key)
        backward, leaving = self._backward(key)
        inner = {*self.stages[key.stage].stash, *self.stages[key.stage].shapes}
        return [*forward, *backward], [*entering, *(name for name in leaving if name not in inner)]

    def _update(self, key: Key) -> Tuple[List[Any], List[str]]:
        sources = self.sources[key.stage]
        ops = self._brought(sources, key.stage, self._scale)
        ops += self.updates.stages[key.stage]
        return [*ops, *self._forgotten(key.stage)], self._kept_by_update(sources)

    def _kept_by_update(self, sources: Mapping[str, str]) -> List[str]:
        kept = [*self.updates.lasting, *self.updates.passed, *sources.values()]
        return kept + [self.reduced(weight) for weight in sources]

    def _before(self, key: Key) -> Tuple[List[Any], List[str]]:
        ops: List[Any] = []
        kept: List[str] = []
        for number, sources in enumerate(self.sources):
            ops += self._brought(sources, number, self._scale)
            kept += self._kept_by_update(sources)
        return [*ops, *self.updates.before], kept

    def _reduce(self, key: Key) -> Tuple[List[Any], List[str]]:
        ops: List[Any] = []
        kept: List[str] = []
        for weight in self.sources[key.stage]:
            like = self._gradient(key.stage, weight)
            terms = [self._scratch.variable(self.met(weight, replica), like) for replica in range(self.replicas)]
            total = self._scratch.variable(self.reduced(weight), like)
            ops.append(self._scratch.op("sum", {"X": terms}, total))
            kept += [*terms, total]
        return ops, kept

    def _gradient(self, stage: int, weight: str) -> Any:
        return self.stages[stage].known[self.stages[stage].gradients[weight]]

    def _brought(self, sources: Mapping[str, str], stage: int, factor: float) -> List[Any]:
        """The ops that bring the gradients, divided, to where the update reads them."""
        ops = []
        for weight, source in sources.items():
            like = self._gradient(stage, weight)
            if self.replicas > 1:
                source = self._scratch.variable(self.reduced(weight), like)
            target = self.raw[weight]
            if source != target or factor != 1.0:
                self._scratch.variable(target, like)
                ops.append(self._scratch.op("scale", {"X": [source]}, target, scale=factor))
        return ops

    def _forgotten(self, stage: int) -> List[Any]:
        """The ops that empty the accumulators of a stage's weights."""
        return [self._zero(stage, weight) for weight in self.sources[stage] if weight in self.accumulated]

    def _zero(self, stage: int, weight: str) -> Any:
        like = self._gradient(stage, weight)
        name = self._scratch.variable(weight + ACCUMULATED, like)
        return self._scratch.op(
            "fill_constant", {}, name, shape=list(like.shape()), dtype=int(like.dtype()), value=0.0, str_value="0"
        )
