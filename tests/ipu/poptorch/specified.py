"""Trains the suite's nets through the vendor's API and compares them with the oracle, within derived tolerances."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import Data, distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.oracle.tolerance.rounding import RandomRounding, mantissa, nearest
from ipu_conformance.oracle.training.train import infer as specified_inference
from ipu_conformance.oracle.training.train import train as specified
from ipu_conformance.run import RunConfig, RunRecord, learning_rate, optimizer

FACTORS = RunConfig(
    device_iterations=2,
    gradient_accumulation=7,
    replicas=3,
    learning_rate=learning_rate(base=0.25),
    optimizer=optimizer("sgd", momentum=0.5),
)
"""Every factor differs from every other, and 7 micro-batches are the least that fill a pipeline of 4 stages."""

NETS = ("linear", "mlp", "convnet", "bn_convnet", "residual", "tied_weights")
CUT = NETS[1:]
"""The nets that can be cut into stages."""
STRATEGIES = {"pipelined": "grouped", "sharded": "sequential"}
"""The names of execution strategies, and the schedules that configurations know them by."""


def cut(name: str, config: RunConfig, stages: int, strategy: str = "pipelined") -> RunConfig:
    """A configuration with a net cut into stages that run under a strategy."""
    return replace(config, stages=nets.NETS[name]().cut(stages), schedule=STRATEGIES[strategy])


def ipus(config: RunConfig) -> pytest.MarkDecorator:
    """The mark of a case that needs the IPUs of a configuration, which are reserved in powers of two."""
    used = (max(config.devices) + 1 if config.devices else config.number_of_stages) * config.replicas
    return pytest.mark.ipus(1 << (used - 1).bit_length())


def configured(rows: Dict[str, RunConfig]) -> List[Any]:
    """Configurations as parameters, each with its id and the IPUs that it needs."""
    return [pytest.param(config, id=word, marks=ipus(config)) for word, config in rows.items()]


def counts(*rows: Tuple[int, int, int], **changes: Any) -> List[Any]:
    """Configurations by (D, G, R), named by them."""
    made = {
        f"D{d}-G{g}-R{r}": replace(FACTORS, device_iterations=d, gradient_accumulation=g, replicas=r, **changes)
        for d, g, r in rows
    }
    return configured(made)


def inference(config: RunConfig) -> RunConfig:
    """The same configuration without training; all micro-batches that a replica sees are device iterations."""
    iterations = config.device_iterations * config.gradient_accumulation
    return replace(config, training=False, device_iterations=iterations, gradient_accumulation=1)


class Runs:
    """What the cases of one file have run so far: those that ask for the same run share it."""

    def __init__(self) -> None:
        self._known: Dict[Any, RunRecord] = {}

    @property
    def driver(self) -> Any:
        """The driver of PopTorch; it imports the vendor's package, so it comes after the target was chosen."""
        return importlib.import_module("ipu_conformance.frameworks.poptorch")

    def train(self, name: str, config: RunConfig, family: str = "") -> RunRecord:
        """The record of training a net on the target."""
        key = (name, config, family)
        if key not in self._known:
            net = nets.NETS[name]()
            self._known[key] = self.driver.train(net, config, distinct_micro_batches(net, config), family=family)
        return self._known[key]

    def infer(self, name: str, config: RunConfig) -> RunRecord:
        """The record of inference from the net's initial weights on the target."""
        key = (name, config, "")
        if key not in self._known:
            net = nets.NETS[name]()
            self._known[key] = self.driver.infer(net, config, distinct_micro_batches(net, config))
        return self._known[key]

    def compare(self, name: str, config: RunConfig, family: str = "", fields: Sequence[str] = ()) -> RunRecord:
        """Train on the target, compare with the oracle, and return the target's record."""
        __tracebackhide__ = True
        net = nets.NETS[name]()
        run = self.train(name, config, family)
        expected = specified(net, distinct_micro_batches(net, config), config)
        fields = fields or ["losses", "outputs", "weights"] + (["statistics"] if net.statistics else [])
        check.runs_equivalent(actual=run, expected=expected, tolerance=tolerance(name, config), fields=fields)
        return run


def tolerance(name: str, config: RunConfig) -> run_tolerance.RunTolerance:
    """The tolerance of a training; stages change when things are computed, not what, so one serves every cut."""
    net = nets.NETS[name]()
    uncut = replace(config, stages=(), devices=(), schedule=FACTORS.schedule)
    return run_tolerance.for_run(net, distinct_micro_batches(net, config), uncut)


class Apart:
    """The tolerance between two runs, each of which may be so far from the exact one on its own side."""

    def __init__(self, each: Any) -> None:
        self._each = each

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._each, name)
        if isinstance(found, dict):
            return {key: _doubled(value) for key, value in found.items()}
        return tuple(map(_doubled, found))


def _doubled(each: run_tolerance.ArrayTolerance) -> run_tolerance.ArrayTolerance:
    return run_tolerance.ArrayTolerance(2 * each.allowed, 2 * each.allowed_rms, f"twice, for two runs, {each.origin}")


def inferred(
    name: str, config: RunConfig, data: Data, weights: Any = None, statistics: Any = None
) -> Tuple[List[np.ndarray], List[run_tolerance.ArrayTolerance]]:
    """The oracle's outputs of each step of an inference, and their tolerances from runs with random rounding."""
    net, config = nets.NETS[name](), replace(config, stages=(), devices=(), schedule=FACTORS.schedule)
    given = {"weights": weights, "statistics": statistics}

    def outputs(rounding: Any = None) -> Any:
        return specified_inference(net, data, config, rounding=rounding, **given).outputs

    exact, form, runs = outputs(), mantissa(config.dtype), run_tolerance.LEAST_RUNS
    rounded = [outputs(RandomRounding(net, config, run)) for run in range(runs)]
    same = outputs(lambda x, site: nearest(x, form))
    rate = run_tolerance.FALSE_ALARM_RATE
    origin = f"{config.dtype}, {runs} oracle runs with random rounding after every op, false-alarm rate {rate:g} a run"
    allowed = [
        run_tolerance.estimate(
            value,
            np.stack([run[step] - value for run in rounded]),
            same[step] - value,
            rate / len(exact),
            origin,
        )
        for step, value in enumerate(exact)
    ]
    return list(exact), allowed
