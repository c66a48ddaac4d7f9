"""Runs the suite's nets through TensorFlow's IPU API and compares them with the oracle, within derived tolerances."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

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
    device_iterations=3,
    gradient_accumulation=2,
    micro_batch=4,
    learning_rate=learning_rate(base=0.0625),
    optimizer=optimizer("sgd", momentum=0.5, rate_in_velocity=True),
    accumulation_reduction="sum",
    replica_reduction="sum",
    output_layout="tensorflow",
)
"""Every factor differs from every other; an execution has device iterations x accumulation steps of a replica."""

NETS = ("linear", "mlp", "convnet", "bn_convnet", "residual", "tied_weights")


def counted(iterations: int, accumulation: int, replicas: int, **changes: Any) -> RunConfig:
    """The usual configuration with other numbers of updates, accumulated micro-batches and replicas."""
    factors = {"device_iterations": iterations, "gradient_accumulation": accumulation, "replicas": replicas}
    return replace(FACTORS, **{**factors, **changes})


def cut(name: str, config: RunConfig, stages: int, schedule: str = "grouped") -> RunConfig:
    """A configuration with a net cut into stages."""
    return replace(config, stages=nets.NETS[name]().cut(stages), schedule=schedule)


def uncut(config: RunConfig) -> RunConfig:
    """The same configuration with all layers on one stage."""
    return replace(config, stages=(), devices=(), schedule=FACTORS.schedule)


def ipus(config: RunConfig) -> pytest.MarkDecorator:
    """The mark of a case that needs the IPUs of a configuration, which are reserved in powers of two."""
    own = max(config.devices, default=config.number_of_stages - 1) + 1
    used = (1 << (own - 1).bit_length()) * config.replicas
    return pytest.mark.ipus(1 << (used - 1).bit_length())


def configured(rows: Mapping[str, RunConfig]) -> List[Any]:
    """Configurations as parameters, each with its id and the IPUs that it needs."""
    return [pytest.param(config, id=word, marks=ipus(config)) for word, config in rows.items()]


Row = Tuple[str, int, int, int, int]
"""A schedule, stages, updates in an execution, accumulated micro-batches, replicas."""


def cuts(names: Iterable[str], rows: Sequence[Row], **changes: Any) -> List[Any]:
    """Every net in every row as parameters (name, configuration)."""
    made = []
    for name in names:
        for schedule, stages, *factors in rows:
            config = cut(name, counted(*factors, **changes), stages, schedule)
            word = "{}-{}-{}-D{}-G{}-R{}".format(name, schedule, stages, *factors)
            made.append(pytest.param(name, config, id=word, marks=ipus(config)))
    return made


class Runs:
    """What the cases have run so far: those that ask for the same run share it."""

    def __init__(self) -> None:
        self._known: Dict[Any, RunRecord] = {}

    @property
    def driver(self) -> Any:
        """The driver of TensorFlow; it imports the framework, so it comes after the target was chosen."""
        return importlib.import_module("ipu_conformance.frameworks.tensorflow")

    def _run(self, way: str, name: str, config: RunConfig, **options: Any) -> RunRecord:
        key = (way, name, config, repr(sorted(options.items())))
        if key not in self._known:
            net = nets.NETS[name]()
            self._known[key] = getattr(self.driver, way)(net, config, distinct_micro_batches(net, config), **options)
        return self._known[key]

    def train(self, name: str, config: RunConfig, **options: Any) -> RunRecord:
        """The record of training a net on the target, with options of the driver."""
        return self._run("train", name, config, **options)

    def infer(self, name: str, config: RunConfig) -> RunRecord:
        """The record of inference from the net's initial weights on the target."""
        return self._run("infer", name, config)

    def native(self, name: str, config: RunConfig) -> RunRecord:
        """The record of training a net with stock Keras."""
        return self._run("native", name, config)

    def compare(self, name: str, config: RunConfig, fields: Sequence[str] = (), **options: Any) -> RunRecord:
        """Train on the target, compare with the oracle, and return the target's record."""
        __tracebackhide__ = True
        net = nets.NETS[name]()
        run = self.train(name, config, **options)
        fields = fields or ["losses", "outputs", "weights"] + (["statistics"] if net.statistics else [])
        check.runs_equivalent(
            actual=run, expected=expected(name, config), tolerance=tolerance(name, config), fields=fields
        )
        return run

    def compare_state(self, name: str, config: RunConfig, **options: Any) -> None:
        """The optimizer's state after a training on the target is the oracle's."""
        __tracebackhide__ = True
        found, (want, allowed) = self.train(name, config, **options).optimizer_state or {}, states(name, config)
        assert found, f"the optimizer {config.optimizer.name} keeps no state"
        for word, held in found.items():
            for weight, value in held.items():
                key = (word, weight)
                what = f"the {word} of {weight}"
                check.close(actual=value, expected=want[key], tolerance=allowed[key], what=what)


def data_of(name: str, config: RunConfig, steps: Optional[int] = None) -> Data:
    """The data of a run, or of its first steps."""
    whole = distinct_micro_batches(nets.NETS[name](), config)
    return Data(whole.inputs[:steps], whole.labels[:steps])


def expected(name: str, config: RunConfig, steps: Optional[int] = None) -> RunRecord:
    """The oracle's record of a run, or of its first steps."""
    asked = replace(config, steps=steps or config.steps)
    return specified(nets.NETS[name](), data_of(name, config, steps), asked)


def tolerance(name: str, config: RunConfig, steps: Optional[int] = None) -> run_tolerance.RunTolerance:
    """The tolerance of a training; one serves every cut, as stages change when things are computed, not what."""
    asked = replace(uncut(config), steps=steps or config.steps)
    return run_tolerance.for_run(nets.NETS[name](), data_of(name, config, steps), asked)


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
Allowed = Dict[Any, run_tolerance.ArrayTolerance]


def measured(name: str, config: RunConfig, arrays: Any) -> Tuple[Arrays, Allowed]:
    """What ``arrays(rounding)`` gives of an exact run of the oracle, and the tolerances from runs with rounding."""
    net, form, runs = nets.NETS[name](), mantissa(config.dtype), run_tolerance.LEAST_RUNS
    exact = arrays(None)
    rounded = [arrays(RandomRounding(net, config, run)) for run in range(runs)]
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


def states(name: str, config: RunConfig) -> Tuple[Arrays, Allowed]:
    """The oracle's optimizer state by (state, weight), and its tolerances; a cut changes neither."""
    return _states(name, uncut(config))


@functools.lru_cache(maxsize=None)
def _states(name: str, config: RunConfig) -> Tuple[Arrays, Allowed]:
    net, data = nets.NETS[name](), data_of(name, config)

    def arrays(rounding: Any) -> Arrays:
        found = specified(net, data, config, rounding=rounding).optimizer_state or {}
        return {(state, weight): value for state, held in found.items() for weight, value in held.items()}

    return measured(name, config, arrays)


def inferred(name: str, config: RunConfig) -> Tuple[Arrays, Allowed]:
    """The oracle's outputs of each step of an inference, and their tolerances; a cut changes neither."""
    return _inferred(name, uncut(config))


@functools.lru_cache(maxsize=None)
def _inferred(name: str, config: RunConfig) -> Tuple[Arrays, Allowed]:
    net, data = nets.NETS[name](), data_of(name, config)

    def arrays(rounding: Any) -> Arrays:
        return dict(enumerate(specified_inference(net, data, config, rounding=rounding).outputs or ()))

    return measured(name, config, arrays)


@pytest.fixture(scope="session", name="runs")
def shared_runs() -> Runs:
    """The runs of the suite's nets that the cases share."""
    return Runs()
