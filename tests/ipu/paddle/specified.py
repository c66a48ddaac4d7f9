"""Runs the suite's nets through Paddle's IPU API and compares them with the oracle, within derived tolerances."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.oracle.tolerance.rounding import RandomRounding, mantissa, nearest
from ipu_conformance.oracle.training.train import infer as specified_inference
from ipu_conformance.oracle.training.train import train as specified
from ipu_conformance.run import RunConfig, RunRecord, learning_rate, optimizer

FACTORS = RunConfig(
    device_iterations=2,
    gradient_accumulation=5,
    replicas=3,
    learning_rate=learning_rate(base=0.25),
    optimizer=optimizer("sgd", momentum=0.5),
    output_layout="paddle",
    unbiased_statistics=False,
)
"""Every factor differs from every other; device iterations are Paddle's batches per step."""

NETS = ("linear", "mlp", "convnet", "bn_convnet", "residual", "tied_weights")
CUT = NETS[1:]
"""The nets that can be cut into stages."""
SCHEDULES = {"pipelined": "grouped", "sharded": "sequential"}
"""How stages are executed with pipelining on and off, and the schedules that configurations know it by."""


def counted(batches: int, accumulation: int, replicas: int, **changes: Any) -> RunConfig:
    """The usual configuration with other numbers of batches per step, accumulated micro-batches and replicas."""
    return replace(FACTORS, device_iterations=batches, gradient_accumulation=accumulation, replicas=replicas, **changes)


def cut(name: str, config: RunConfig, stages: int, kind: str = "pipelined") -> RunConfig:
    """A configuration with a net cut into stages that run with pipelining on or off."""
    return replace(config, stages=nets.NETS[name]().cut(stages), schedule=SCHEDULES[kind])


def ipus(config: RunConfig) -> pytest.MarkDecorator:
    """The mark of a case that needs the IPUs of a configuration, which are reserved in powers of two."""
    used = (max(config.devices) + 1 if config.devices else config.number_of_stages) * config.replicas
    return pytest.mark.ipus(1 << (used - 1).bit_length())


def configured(rows: Mapping[str, RunConfig]) -> List[Any]:
    """Configurations as parameters, each with its id and the IPUs that it needs."""
    return [pytest.param(config, id=word, marks=ipus(config)) for word, config in rows.items()]


def counts(*rows: Tuple[int, int, int], **changes: Any) -> List[Any]:
    """Configurations by (batches per step, accumulation, replicas), named by them."""
    return configured({f"B{b}-G{g}-R{r}": counted(b, g, r, **changes) for b, g, r in rows})


def inference(config: RunConfig) -> RunConfig:
    """The same configuration without training; all micro-batches that a replica sees are batches of a step."""
    batches = config.device_iterations * config.gradient_accumulation
    return replace(config, training=False, device_iterations=batches, gradient_accumulation=1)


class Runs:
    """What the cases have run so far: those that ask for the same run share it."""

    def __init__(self) -> None:
        self._known: Dict[Any, RunRecord] = {}

    @property
    def driver(self) -> Any:
        """The driver of Paddle; it imports the framework, so it comes after the target was chosen."""
        return importlib.import_module("ipu_conformance.frameworks.paddle")

    def train(self, name: str, config: RunConfig, **options: Any) -> RunRecord:
        """The record of training a net on the target, with further options of the strategy."""
        key = ("train", name, config, tuple(options.items()))
        if key not in self._known:
            net = nets.NETS[name]()
            data = distinct_micro_batches(net, config)
            self._known[key] = self.driver.train(net, config, data, options=options)
        return self._known[key]

    def infer(self, name: str, config: RunConfig) -> RunRecord:
        """The record of inference from the net's initial weights on the target."""
        key = ("infer", name, config)
        if key not in self._known:
            net = nets.NETS[name]()
            self._known[key] = self.driver.infer(net, config, distinct_micro_batches(net, config))
        return self._known[key]

    def native(self, name: str, config: RunConfig) -> RunRecord:
        """The record of training a net with the stock executor."""
        key = ("native", name, config)
        if key not in self._known:
            net = nets.NETS[name]()
            self._known[key] = self.driver.native(net, config, distinct_micro_batches(net, config))
        return self._known[key]

    def compare(self, name: str, config: RunConfig, fields: Sequence[str] = (), **options: Any) -> RunRecord:
        """Train on the target, compare with the oracle, and return the target's record."""
        __tracebackhide__ = True
        net = nets.NETS[name]()
        run = self.train(name, config, **options)
        expected = specified(net, distinct_micro_batches(net, config), config)
        fields = fields or ["losses", "outputs", "weights"] + (["statistics"] if net.statistics else [])
        check.runs_equivalent(actual=run, expected=expected, tolerance=tolerance(name, config), fields=fields)
        return run


def tolerance(name: str, config: RunConfig) -> run_tolerance.RunTolerance:
    """The tolerance of a training; unless updates happen inside the pipeline, one serves every cut."""
    net = nets.NETS[name]()
    if config.update != "micro_batch":
        config = replace(config, stages=(), devices=(), schedule=FACTORS.schedule)
    return run_tolerance.for_run(net, distinct_micro_batches(net, config), config)


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


Arrays = Dict[Any, np.ndarray]


def measured(config: RunConfig, arrays: Any) -> Tuple[Arrays, Dict[Any, run_tolerance.ArrayTolerance]]:
    """What ``arrays(rounding)`` gives of an exact run of the oracle, and the tolerances from runs with rounding."""
    exact, form, runs = arrays(None), mantissa(config.dtype), run_tolerance.LEAST_RUNS
    rounded = [arrays(run) for run in range(runs)]
    same = arrays(lambda x, site: nearest(x, form))
    rate = run_tolerance.FALSE_ALARM_RATE
    origin = f"{config.dtype}, {runs} oracle runs with random rounding after every op, false-alarm rate {rate:g} a run"
    allowed = {
        key: run_tolerance.estimate(
            value, np.stack([run[key] - value for run in rounded]), same[key] - value, rate / len(exact), origin
        )
        for key, value in exact.items()
    }
    return exact, allowed


def states(name: str, config: RunConfig) -> Tuple[Arrays, Dict[Any, run_tolerance.ArrayTolerance]]:
    """The oracle's optimizer state by (state, weight), and its tolerances."""
    net = nets.NETS[name]()
    data, uncut = distinct_micro_batches(net, config), replace(config, stages=(), devices=())

    def arrays(rounding: Any) -> Arrays:
        chosen = RandomRounding(net, uncut, rounding) if isinstance(rounding, int) else rounding
        found = specified(net, data, uncut, rounding=chosen).optimizer_state or {}
        return {(state, weight): value for state, held in found.items() for weight, value in held.items()}

    return measured(config, arrays)


def inferred(name: str, config: RunConfig) -> Tuple[Arrays, Dict[Any, run_tolerance.ArrayTolerance]]:
    """The oracle's outputs of each step of an inference, and their tolerances; a cut changes neither."""
    return _inferred(name, replace(config, stages=(), devices=(), schedule=FACTORS.schedule))


@functools.lru_cache(maxsize=None)
def _inferred(name: str, config: RunConfig) -> Tuple[Arrays, Dict[Any, run_tolerance.ArrayTolerance]]:
    net = nets.NETS[name]()
    data = distinct_micro_batches(net, config)

    def arrays(rounding: Any) -> Arrays:
        chosen = RandomRounding(net, config, rounding) if isinstance(rounding, int) else rounding
        return dict(enumerate(specified_inference(net, data, config, rounding=chosen).outputs or ()))

    return measured(config, arrays)
