"""Executes stages with PyTorch's own CPU kernels: every replica owns its weights, gradients and optimizer state."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Protocol, Sequence, Tuple

import torch

from ipu_conformance.emulator.poptorch.compile.partition import Stage
from ipu_conformance.emulator.poptorch.run import random_state
from ipu_conformance.emulator.poptorch.run.loss_scaling import FixedScale

Tensors = Dict[str, torch.Tensor]


class Update(Protocol):
    """One optimizer on the device."""

    running_mean: bool
    """Whether the mean of gradients is kept while accumulating."""
    settings: Any

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by before the backward pass."""

    @property
    def accum_type(self) -> torch.dtype:
        """The type in which gradients are accumulated."""

    @property
    def max_grad_norm(self) -> float:
        """The norm above which all gradients are shrunk together; infinite for none."""

    def clip_factor(self, gradients: Mapping[str, torch.Tensor]) -> float:
        """What to multiply all gradients of a model by."""

    def step(self, weights: Tensors, gradients: Tensors, state: Dict[str, Tensors]) -> None:
        """Change ``weights`` and their ``state`` in place; the gradients are read only and without loss scaling."""


class _Thread(threading.local):
    """Whether the running thread is prepared; the one that makes the machine computes as the user has set it."""

    prepared = False

    def __init__(self) -> None:
        self.prepared = threading.current_thread() is threading.main_thread()

    def prepare(self, threads: int) -> None:
        """Give a replica its share of the cores: with all of them each, replicas would wait for one another."""
        torch.set_num_threads(threads)
        self.prepared = True


class TorchMachine:
    """The engine's machine on torch tensors."""

    def __init__(
        self,
        stages: Sequence[Stage],
        weights: Sequence[Tensors],
        *,
        trainable: Sequence[str] = (),
        update: Optional[Update] = None,
        accumulation: int = 1,
        mean: bool = True,
        seed: int = 0,
        kept: Optional[FrozenSet[Tuple[int, int]]] = None,
        group_of: Optional[Mapping[str, Tuple[int, ...]]] = None,
        scaling: Optional[FixedScale] = None,
    ) -> None:
        self.stages = list(stages)
        self.replica_weights = list(weights)
        self.trainable = frozenset(trainable)
        self.accumulation = accumulation
        self.mean = mean
        self.seed = seed
        self.runs = 0
        self.kept = kept
        """The slots whose outputs are returned, as (replica, micro-batch); None for all."""
        self.group_of = dict(group_of or {})
        self.scaling = scaling or FixedScale()
        self.state: List[Dict[str, Tensors]] = [{} for _ in weights]
        self.watched_gradients: Dict[str, int] = {}
        """The leaf under which the gradients of a weight are kept as they are made."""
        self.watched_updates: Dict[str, int] = {}
        """The leaf under which a weight is kept as it is after each update."""
        self.inputs: Sequence[Sequence[Sequence[torch.Tensor]]] = ()
        self.outputs: List[List[Dict[int, torch.Tensor]]] = []
        self._accumulators: List[Tensors] = [{} for _ in weights]
        self._counts: List[Dict[str, int]] = [{} for _ in weights]
        self._iterations = [0 for _ in weights]
        self._clipping: List[Optional[float]] = [None for _ in weights]
        self._updated = [0 for _ in weights]
        self._reduced: Dict[int, List[Tensors]] = {}
        self._threads = max(1, torch.get_num_threads() // len(self.replica_weights))
        self._thread = _Thread()
        self.set_update(update)

    def set_update(self, update: Optional[Update]) -> None:
        """Use another optimizer from now on; it takes over the state."""
        self.update_rule = update
        self.scaling.scale = 1.0 if update is None else update.loss_scale
        running = update is not None and update.running_mean
        replicas = len(self.replica_weights) if self.mean else 1
        shares = self.accumulation if self.mean else 1
        self._running = running
        self.divisor = float(replicas * shares) / (self.accumulation if running else 1)
        """What the sum over the replicas of accumulated gradients is divided by."""
        types = {self.replica_weights[0][name].dtype for name in self.trainable}
        # Autograd accumulates sums in the type of the weight; anything else needs separate accumulators.
        self._separate_accumulators = running or (update is not None and bool(types - {update.accum_type}))
        self._clips = update is not None and update.max_grad_norm != float("inf")

    def begin(self, inputs: Sequence[Sequence[Sequence[torch.Tensor]]]) -> None:
        """Take the tensors of every replica's micro-batches for the next run."""
        self.inputs = inputs
        self.outputs = [[{} for _ in fed] for fed in inputs]
        self._iterations = [0 for _ in inputs]
        self.scaling.begin(len(inputs))
        self.runs += 1

    def end(self) -> None:
        """Release the inputs and outputs of the run."""
        self.scaling.end(self._iterations[0])
        self.inputs, self.outputs = (), []

    def forward(
        self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool
    ) -> Tuple[Tuple[torch.Tensor, ...], Any]:
        """Run one stage; with ``keep`` its autograd graph is the stash."""
        program = self.stages[stage]
        received = _leaves(boundary, keep) if program.received else ()
        results = self._run(program, replica, micro_batch, received, keep)
        count = len(program.handed)
        if program.outputs and (self.kept is None or (replica, micro_batch) in self.kept):
            outputs = self.outputs[replica][micro_batch]
            for index, value in zip(program.outputs, results[count:]):
                # A weight that comes back is the one that this micro-batch was computed with, not a later one.
                outputs[index] = value.detach().clone() if value.is_leaf and value.requires_grad else value.detach()
        handed = results[:count]
        return handed, (received, handed, results[-1] if program.loss else None) if keep else None

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        """Run the stage again for its autograd graph; buffers that it changes are put back."""
        program = self.stages[stage]
        weights = self.replica_weights[replica]
        buffers = {name: weights[name].clone() for name in program.weights if name not in self.trainable}
        received = _leaves(boundary, True) if program.received else ()
        results = self._run(program, replica, micro_batch, received, True)
        for name, value in buffers.items():
            weights[name].data.copy_(value)
        return received, results[: len(program.handed)], results[-1] if program.loss else None

    def _run(
        self, program: Stage, replica: int, micro_batch: int, received: Sequence[torch.Tensor], keep: bool
    ) -> Tuple[torch.Tensor, ...]:
        if not self._thread.prepared:
            self._thread.prepare(self._threads)
        weights = self.replica_weights[replica]
        inputs = self.inputs[replica][micro_batch]
        if program.random:
            random_state.slot.seed = random_state.slot_seed(self.seed, self.runs, replica, micro_batch)
        # A value that is written over later is what it was where the gradient needs it: a device has it by value.
        by_value = torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, _as_it_is)
        with torch.set_grad_enabled(keep), by_value if keep and program.writes else contextlib.nullcontext():
            return program.run(
                *[weights[name] for name in program.weights], *[inputs[index] for index in program.inputs], *received
            )

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        """Accumulate the gradients of the stage's weights; return those of what it received."""
        received, handed, loss = stash
        roots: List[torch.Tensor] = []
        seeds: List[Optional[torch.Tensor]] = []
        for value, seed in zip(handed, gradient or ()):
            if seed is not None and value.requires_grad:
                roots.append(value)
                seeds.append(seed)
        if loss is not None and loss.requires_grad:
            roots.append(loss)
            seeds.append(torch.full_like(loss, self.scaling.at(self._iterations[replica])))
        if roots:
            with self.scaling.watching(replica, self._iterations[replica]):
                torch.autograd.backward(roots, seeds)
            if self._separate_accumulators or self.watched_gradients:
                self._accumulate(replica, stage, micro_batch)
        return tuple(value.grad for value in received)

    def _accumulate(self, replica: int, stage: int, micro_batch: int) -> None:
        """Fold one micro-batch into accumulators of the optimizer's type, by its strategy."""
        weights, counts = self.replica_weights[replica], self._counts[replica]
        held = self._accumulators[replica]
        for name in self.stages[stage].weights:
            fresh = weights[name].grad if name in self.trainable else None
            if fresh is None:
                continue
            weights[name].grad = None
            if name in self.watched_gradients:
                # A weight that several stages use has a gradient from each.
                outputs, leaf = self.outputs[replica][micro_batch], self.watched_gradients[name]
                outputs[leaf] = outputs[leaf] + fresh if leaf in outputs else fresh.detach().clone()
            count = counts.get(name, 0)
            counts[name] = count + 1
            held[name] = self._folded(held.get(name), fresh, count)

    def _folded(self, old: Optional[torch.Tensor], fresh: torch.Tensor, count: int) -> torch.Tensor:
        """The accumulator after one more gradient; sums are made in float32 and rounded to the optimizer's type."""
        rule = self.update_rule
        if not self._separate_accumulators or rule is None:
            return fresh if old is None else old + fresh
        total = fresh.float()
        if old is not None:
            if rule.running_mean:
                total = old.float() * (count / (count + 1)) + total / (count + 1)
            else:
                total = old.float() + total
        return total.to(rule.accum_type)

    def gradients(self, replica: int, stage: int) -> Tensors:
        """What was accumulated for the weights that the stage owns; a weight without influence on the loss has none."""
        weights, held = self.replica_weights[replica], self._accumulators[replica]
        gradients = {}
        for name in self.stages[stage].owned:
            if name in self.trainable:
                gradient = held[name] if name in held else weights[name].grad
                if gradient is not None:
                    gradients[name] = gradient
        return gradients

    def reduce(self, stage: int, gradients: List[Tensors]) -> List[Tensors]:
        """The sum over the replicas in their order, over the divisor; every replica of a group gets the same bits.

        The sum takes the place of the first replica's gradients and the others' are let go, so that no copy is needed.
        """
        if not self._clips:
            for replica, names in enumerate(gradients):
                self._forget(replica, names)
        reduced = self._sums(gradients)
        if self._clips:
            self._reduced[stage] = reduced
        return reduced

    def _sums(self, gradients: List[Tensors]) -> List[Tensors]:
        names = [name for name in gradients[0] if name not in self.group_of]
        shared = dict(zip(names, self._sum(gradients, names, self.divisor)))
        results = [dict(shared) for _ in gradients] if self.group_of else [shared] * len(gradients)
        for name, group in self.group_of.items():
            if name in gradients[0]:
                for number in set(group):
                    members = [replica for replica, group_number in enumerate(group) if group_number == number]
                    # Running takes the mean of the group; Post adds in the group and divides by all replicas.
                    divisor = float(len(members)) if self.mean and self._running else self.divisor
                    (value,) = self._sum([gradients[replica] for replica in members], [name], divisor)
                    for replica in members:
                        results[replica][name] = value
        return results

    def _sum(self, gradients: Sequence[Tensors], names: Sequence[str], divisor: float) -> List[torch.Tensor]:
        total = [gradients[0][name] for name in names]
        divisor = divisor * self.scaling.at(self._iterations[0])
        if not total or (len(gradients) == 1 and divisor == 1.0):
            return total
        # Unscaled in float16, what loss scaling has saved would underflow after all.
        total = [value.float() if value.dtype == torch.float16 else value for value in total]
        if self._clips:
            # The norm is taken of gradients that are not reduced yet, so they stay as they are.
            total = [value.clone() for value in total]
        for other in gradients[1:]:
            torch._foreach_add_(total, [other.pop(name) for name in names])
        if divisor != 1.0:
            torch._foreach_div_(total, divisor)
        return total

    def update(self, replica: int, stage: int, gradients: Tensors) -> None:
        """One step of the optimizer on the weights that the stage owns."""
        weights = self.replica_weights[replica]
        if gradients and self.update_rule is not None:
            with torch.no_grad():
                if self._clips:
                    factor = self._clip_factor(replica)
                    gradients = {name: value * factor for name, value in gradients.items()}
                self.update_rule.step({name: weights[name] for name in gradients}, gradients, self.state[replica])
        self._forget(replica, gradients)
        for name, leaf in self.watched_updates.items():
            if name in gradients:
                self._watch_update(replica, leaf, weights[name].detach().clone())
        self._updated[replica] += 1
        if self._updated[replica] == len(self.stages):
            self._updated[replica], self._clipping[replica] = 0, None
            self._iterations[replica] += 1

    def _forget(self, replica: int, names: Iterable[str]) -> None:
        """Start accumulating from nothing."""
        weights = self.replica_weights[replica]
        for name in names:
            weights[name].grad = None
            self._accumulators[replica].pop(name, None)
            self._counts[replica].pop(name, None)

    def _watch_update(self, replica: int, leaf: int, value: torch.Tensor) -> None:
        first = self._iterations[replica] * self.accumulation
        for outputs in self.outputs[replica][first : first + self.accumulation]:
            outputs[leaf] = value

    def _clip_factor(self, replica: int) -> float:
        """What shrinks all gradients of one replica; the norm is over all stages, before the first of them updates."""
        factor = self._clipping[replica]
        if factor is None:
            everything: Tensors = {}
            for stage in range(len(self.stages)):
                if len(self.replica_weights) > 1:
                    everything.update(self._reduced[stage][replica])
                else:
                    everything.update(self._sums([self.gradients(replica, stage)])[0])
            assert self.update_rule is not None
            factor = self.update_rule.clip_factor(everything)
            self._clipping[replica] = factor
        return factor

    def weights(self, replica: int, stage: int) -> Tensors:
        """Copies of the weights that the stage owns."""
        return {name: self.replica_weights[replica][name].detach().clone() for name in self.stages[stage].owned}

    def set_weights(self, replica: int, stage: int, weights: Mapping[str, Any]) -> None:
        """Replace weights that the stage owns."""
        with torch.no_grad():
            for name, value in weights.items():
                weight = self.replica_weights[replica][name]
                weight.copy_(torch.as_tensor(value, dtype=weight.dtype))


def _as_it_is(value: torch.Tensor) -> torch.Tensor:
    return value


def _leaves(values: Sequence[torch.Tensor], keep: bool) -> Tuple[torch.Tensor, ...]:
    """What a stage received, cut off from the graph of the stage that made it."""
    if not keep:
        return tuple(values)
    return tuple(value.detach().requires_grad_(value.is_floating_point()) for value in values)
