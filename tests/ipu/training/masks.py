"""Nets whose outputs show what dropout did, and the oracle's run with the masks that were seen.

The first layer gives one for every sample, whatever it is fed; what follows dropout keeps zero where it is.
"""

from __future__ import annotations

import functools
from typing import Optional, Tuple

import numpy as np

from ipu_conformance import check
from ipu_conformance.nets import INPUT, Layer, Net, Weight
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.oracle.tolerance.runs import RunTolerance
from ipu_conformance.oracle.training import train as oracle
from ipu_conformance.oracle.training.execution import Place, Rounding
from ipu_conformance.run import RunConfig, RunRecord

from .frame import Runs, data_of, uncut

POSITIONS = 160
RATES = (0.375, 0.25)
LOW = 0.125
"""The rate of many in a row, after which what is kept is still small."""
RATE = 1 - (1 - RATES[0]) * (1 - RATES[1])
"""What two dropouts drop together, if neither knows of the other."""


@functools.lru_cache(maxsize=None)
def mask_net(stages: int = 1, everywhere: bool = False) -> Net:
    """A linear layer, two dropouts, and rectifiers that change nothing, each of which can begin a stage.

    The second dropout is in the middle of the stages; with ``everywhere`` each stage but the last has one.
    """
    weights = (Weight("fc1.weight", (POSITIONS, 3)), Weight("fc1.bias", (POSITIONS,), constant=1.0))
    layers = [
        Layer("fc1", "linear", (INPUT,), tuple(weight.name for weight in weights)),
        Layer("drop1", "dropout", ("fc1",), settings=(("rate", RATES[0]),)),
    ]
    for number in range(stages):
        if number:
            layers.append(Layer(f"act{number}", "relu", (layers[-1].name,), cut_before=True))
        if everywhere and 0 < number < stages - 1:
            layers.append(Layer(f"drop{number + 1}", "dropout", (layers[-1].name,), settings=(("rate", LOW),)))
        elif number == stages // 2 and not everywhere:
            layers.append(Layer("drop2", "dropout", (layers[-1].name,), settings=(("rate", RATES[1]),)))
    return Net(f"mask-{stages}{'-everywhere' if everywhere else ''}", (3,), POSITIONS, tuple(layers), weights)


def kept(run: RunRecord) -> np.ndarray:
    """What was kept: [step, device iteration, accumulation, replica, sample, position]."""
    config = run.config
    counts = (config.device_iterations, config.gradient_accumulation, config.replicas, config.micro_batch, POSITIONS)
    return np.stack([np.reshape(outputs, counts) != 0 for outputs in run.outputs or ()])


def with_masks(run: RunRecord, net: Net) -> Tuple[RunRecord, RunTolerance]:
    """The oracle's run that drops what a device's outputs show as dropped, and the tolerance of both."""
    seen, whole, data = kept(run), uncut(run.config), data_of(net, run.config)

    def masks(layer: str, place: Place, shape: Tuple[int, ...], rate: float) -> np.ndarray:
        return seen[place].astype(np.float64)

    def trained(rounding: Optional[Rounding] = None) -> RunRecord:
        return oracle.train(net, data, whole, masks=masks, rounding=rounding)

    _, arrays = run_tolerance.reference(net, whole, lambda rounding: run_tolerance.arrays_of(trained(rounding)))
    return trained(), run_tolerance.assembled(arrays)


def compare_with_masks(runs: Runs, net: Net, config: RunConfig) -> None:
    """Losses and weights are the oracle's when it drops what the device's outputs show as dropped."""
    __tracebackhide__ = True
    run = runs.train(net, config)
    expected, tolerance = with_masks(run, net)
    check.runs_equivalent(actual=run, expected=expected, tolerance=tolerance, fields=["losses", "weights"], net=net)
