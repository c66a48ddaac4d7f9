"""Executes stages with PyTorch's own CPU kernels: every replica owns its weights, gradients and optimizer state."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple

import torch

from ipu_conformance.emulator.poptorch import draw
from ipu_conformance.emulator.poptorch.partition import Stage

Tensors = Dict[str, torch.Tensor]


class Update(Protocol):
    """One step of an optimizer on the device."""

    def step(self, weights: Tensors, gradients: Tensors, state: Dict[str, Tensors]) -> None:
        """Change ``weights`` and their ``state`` in place; the gradients are read only and without loss scaling."""


class TorchMachine:
    """The machine behind ``emulator.execute``'s engine, on torch tensors."""

    def __init__(
        self,
        stages: Sequence[Stage],
        weights: Sequence[Tensors],
        *,
        trainable: Sequence[str],
        update: Optional[Update],
        divisor: float,
        seed: int,
        loss_scale: float = 1.0,
        running_mean: bool = False,
    ) -> None:
        self.stages = list(stages)
        self.replica_weights = list(weights)
        self.trainable = frozenset(trainable)
        self.update_rule = update
        self.divisor = divisor
        self.loss_scale = loss_scale
        self.running_mean = running_mean
        self.seed = seed
        self.runs = 0
        self.state: List[Dict[str, Tensors]] = [{} for _ in weights]
        self.inputs: Sequence[Sequence[Sequence[torch.Tensor]]] = ()
        self.outputs: List[List[Dict[int, torch.Tensor]]] = []
        self._generators = [torch.Generator() for _ in weights]
        self._accumulated: List[Dict[str, int]] = [{} for _ in weights]

    def begin(self, inputs: Sequence[Sequence[Sequence[torch.Tensor]]]) -> None:
        """Take the tensors of every replica's micro-batches for the next run."""
        self.inputs = inputs
        self.outputs = [[{} for _ in own] for own in inputs]
        self.runs += 1

    def forward(
        self, replica: int, stage: int, micro_batch: int, boundary: Any, keep: bool
    ) -> Tuple[Tuple[torch.Tensor, ...], Any]:
        """Run one stage; with ``keep`` its autograd graph is the stash."""
        own = self.stages[stage]
        received = _leaves(boundary, keep) if own.received else ()
        results = self._run(own, replica, micro_batch, received, keep)
        count = len(own.handed)
        made = self.outputs[replica][micro_batch]
        for index, value in zip(own.outputs, results[count:]):
            made[index] = value.detach()
        handed = results[:count]
        return handed, (received, handed, results[-1] if own.loss else None) if keep else None

    def recompute(self, replica: int, stage: int, micro_batch: int, boundary: Any) -> Any:
        """Run the stage again for its autograd graph; buffers that it changes are put back."""
        own = self.stages[stage]
        weights = self.replica_weights[replica]
        buffers = {name: weights[name].clone() for name in own.weights if name not in self.trainable}
        received = _leaves(boundary, True) if own.received else ()
        results = self._run(own, replica, micro_batch, received, True)
        for name, value in buffers.items():
            weights[name].data.copy_(value)
        return received, results[: len(own.handed)], results[-1] if own.loss else None

    def _run(
        self, own: Stage, replica: int, micro_batch: int, received: Sequence[torch.Tensor], keep: bool
    ) -> Tuple[torch.Tensor, ...]:
        weights = self.replica_weights[replica]
        inputs = self.inputs[replica][micro_batch]
        if own.random:
            generator = self._generators[replica]
            generator.manual_seed(draw.slot_seed(self.seed, self.runs, replica, own.number, micro_batch))
            draw.slot.generator = generator
        with torch.set_grad_enabled(keep):
            return own.run(
                *[weights[name] for name in own.weights], *[inputs[index] for index in own.inputs], *received
            )

    def backward(self, replica: int, stage: int, micro_batch: int, stash: Any, gradient: Any) -> Any:
        """Accumulate the gradients of the stage's weights; return those of what it received."""
        received, handed, loss = stash
        roots: List[torch.Tensor] = []
        seeds: List[Optional[torch.Tensor]] = []
        for value, own in zip(handed, gradient or ()):
            if own is not None and value.requires_grad:
                roots.append(value)
                seeds.append(own)
        if loss is not None and loss.requires_grad:
            roots.append(loss)
            seeds.append(torch.full_like(loss, self.loss_scale))
        if roots:
            if self.running_mean:
                self._accumulate_mean(replica, stage, roots, seeds)
            else:
                torch.autograd.backward(roots, seeds)
        return tuple(value.grad for value in received)

    def _accumulate_mean(
        self, replica: int, stage: int, roots: Sequence[torch.Tensor], seeds: Sequence[Optional[torch.Tensor]]
    ) -> None:
        """Fold one micro-batch into the running mean: acc * n/(n+1) + g/(n+1)."""
        weights, counts = self.replica_weights[replica], self._accumulated[replica]
        names = [name for name in self.stages[stage].weights if name in self.trainable]
        before = {name: weights[name].grad for name in names}
        for name in names:
            weights[name].grad = None
        torch.autograd.backward(roots, seeds)  # type: ignore[arg-type]
        for name in names:
            fresh, old = weights[name].grad, before[name]
            if fresh is None:
                weights[name].grad = old
                continue
            count = counts.get(name, 0)
            counts[name] = count + 1
            if old is not None:
                weights[name].grad = old * (count / (count + 1)) + fresh / (count + 1)

    def gradients(self, replica: int, stage: int) -> Tensors:
        """What was accumulated for the weights that the stage owns."""
        weights = self.replica_weights[replica]
        found = {}
        for name in self.stages[stage].owned:
            if name in self.trainable:
                gradient = weights[name].grad
                found[name] = torch.zeros_like(weights[name]) if gradient is None else gradient
        return found

    def reduce(self, stage: int, gradients: List[Tensors]) -> List[Tensors]:
        """The sum over the replicas in their order, over the divisor; every replica gets the same bits."""
        names = list(gradients[0])
        if not names:
            return gradients
        total = [gradients[0][name] for name in names]
        for other in gradients[1:]:
            total = torch._foreach_add(total, [other[name] for name in names])
        divisor = self.divisor * self.loss_scale
        if divisor != 1.0:
            total = torch._foreach_div(total, divisor)
        shared = dict(zip(names, total))
        return [shared] * len(gradients)

    def update(self, replica: int, stage: int, gradients: Tensors) -> None:
        """One step of the optimizer on the weights that the stage owns."""
        weights = self.replica_weights[replica]
        if gradients and self.update_rule is not None:
            with torch.no_grad():
                self.update_rule.step({name: weights[name] for name in gradients}, gradients, self.state[replica])
        for name in gradients:
            weights[name].grad = None
        self._accumulated[replica].clear()

    def weights(self, replica: int, stage: int) -> Tensors:
        """Copies of the weights that the stage owns."""
        return {name: self.replica_weights[replica][name].detach().clone() for name in self.stages[stage].owned}

    def set_weights(self, replica: int, stage: int, weights: Mapping[str, Any]) -> None:
        """Replace weights that the stage owns."""
        with torch.no_grad():
            for name, value in weights.items():
                own = self.replica_weights[replica][name]
                own.copy_(torch.as_tensor(value, dtype=own.dtype))


def _leaves(values: Sequence[torch.Tensor], keep: bool) -> Tuple[torch.Tensor, ...]:
    """What a stage received, cut off from the graph of the stage that made it."""
    if not keep:
        return tuple(values)
    return tuple(value.detach().requires_grad_(value.is_floating_point()) for value in values)
