"""How one replica executes an accumulation group: micro-batches flow through the stages, forward and backward.

All micro-batches of a group see the same weights, unless each is followed by an update of its own: a weight is in one
place, so that a micro-batch on its way back meets what others have made of the weights. A stage sees what crossed the
borders before it and nothing else. With recomputation it keeps only that, and goes forward once more before it goes
backward: with the same dropout masks, and without counting the micro-batch a second time in the running statistics.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ipu_conformance.nets import INPUT, Layer, Net
from ipu_conformance.oracle.training.composites import written_out
from ipu_conformance.oracle.training.layers import Call, call_of, statistics_after
from ipu_conformance.run import Array, RunConfig, Weights

LABELS = "labels"
LOSS = "loss"

Rounding = Callable[[Array, str], Array]
Stage = Tuple[Layer, ...]


class Place(NamedTuple):
    """Which micro-batch of a run: its step, device iteration, turn in the accumulation, and replica."""

    step: int
    iteration: int
    accumulation: int
    replica: int


Masks = Callable[[str, Place, Tuple[int, ...], float], Array]
"""``masks(layer, place, shape, rate)`` gives dropout's mask: 1 where a value is kept, 0 where it is dropped."""


def stages_of(net: Net, placement: Sequence[int]) -> Tuple[Stage, ...]:
    """The ops of each stage; the loss is on the last."""
    operands = (net.layers[-1].name, LABELS)[: 1 + net.labelled]
    rows = (*net.layers, Layer(LOSS, net.loss, operands, settings=net.loss_settings))
    numbers = (*placement, placement[-1]) if placement else (0,) * len(rows)
    return tuple(
        tuple(op for row, number in zip(rows, numbers) if number == stage for op in written_out(row))
        for stage in range(numbers[-1] + 1)
    )


def slots(schedule: str, stages: int, micro_batches: int, training: bool) -> Iterator[Tuple[str, int, int]]:
    """Which stage does what for which micro-batch, in the order of time.

    Sequential finishes a micro-batch before the next begins. Otherwise a stage passes a micro-batch on at every tick;
    a new one enters with every tick (grouped) or with every other (interleaved, forward and backward by turns).
    """
    last = 2 * stages - 1
    pace = {"sequential": last + 1, "grouped": 1, "interleaved": 2}[schedule]
    rows = [(pace * m + s, "forward", s, m) for m in range(micro_batches) for s in range(stages)]
    if training:
        rows += [(pace * m + last - s, "backward", s, m) for m in range(micro_batches) for s in range(stages)]
    return ((kind, stage, micro_batch) for _, kind, stage, micro_batch in sorted(rows))


class MicroBatch:
    """One micro-batch on its way: the values that crossed borders, what stages keep of it, and its gradients."""

    def __init__(self, inputs: Array, labels: Array, place: Place, masks: Masks, rounding: Rounding) -> None:
        self.gradients: Dict[str, Array] = {}
        self.masks: Dict[str, Array] = {}
        self._values: Dict[str, Array] = {INPUT: inputs, LABELS: labels}
        self._cotangents: Dict[str, Array] = {}
        self._kept: Dict[int, List[Call]] = {}
        self._place, self._make_mask, self._round = place, masks, rounding

    def value(self, name: str) -> Array:
        """A value that has left its stage."""
        return self._values[name]

    def forward(
        self, stages: Sequence[Stage], number: int, weights: Weights, statistics: Weights, config: RunConfig
    ) -> Weights:
        """Go through a stage and give the running statistics after it."""
        calls, values = self._through(stages[number], weights, statistics, config.training)
        if config.training and not config.recompute:
            self._kept[number] = calls
        wanted = {name for stage in stages[number + 1 :] for layer in stage for name in layer.inputs}
        wanted |= {LOSS, stages[-1][-1].inputs[0]}
        self._values.update((name, value) for name, value in values.items() if name in wanted)
        after = dict(statistics)
        for layer in stages[number] if config.training else ():
            moved = statistics_after(layer, values[layer.inputs[0]], statistics, config.unbiased_statistics)
            after.update((name, self._round(x, f"statistics/{name}")) for name, x in moved.items())
        return after

    def backward(
        self, stages: Sequence[Stage], number: int, weights: Weights, statistics: Weights, config: RunConfig
    ) -> None:
        """Go back through a stage and add to the gradients of the weights and of what came into the stage."""
        calls = (
            self._through(stages[number], weights, statistics, True)[0] if config.recompute else self._kept.pop(number)
        )
        if number == len(stages) - 1:
            self._cotangents[LOSS] = np.full(np.shape(self._values[LOSS]), config.loss_scale)
        for call in reversed(calls):
            for name, gradient in call.holding(weights).backward(self._cotangents.pop(call.layer)).items():
                if name != INPUT:
                    self._add(
                        self.gradients if name in weights else self._cotangents,
                        name,
                        gradient,
                        f"backward/{call.layer}",
                    )

    def _add(self, totals: Dict[str, Array], name: str, gradient: Array, site: str) -> None:
        gradient = self._round(gradient, site)
        totals[name] = self._round(totals[name] + gradient, site) if name in totals else gradient

    def _through(
        self, stage: Stage, weights: Weights, statistics: Weights, training: bool
    ) -> Tuple[List[Call], Dict[str, Array]]:
        """The calls of a stage, and its values with those that came into it."""
        calls: List[Call] = []
        values = dict(self._values)
        for layer in stage:
            calls.append(call_of(layer, values, weights, statistics, self._mask(layer, values), training))
            values[layer.name] = self._round(calls[-1].forward(), f"forward/{layer.name}")
        return calls, values

    def _mask(self, layer: Layer, values: Weights) -> Optional[Array]:
        if layer.op != "dropout":
            return None
        if layer.name not in self.masks:
            shape = values[layer.inputs[0]].shape
            self.masks[layer.name] = self._make_mask(layer.name, self._place, shape, layer.attributes["rate"])
        return self.masks[layer.name]
