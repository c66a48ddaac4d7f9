"""Trains the suite's nets through a framework's driver and compares them with the oracle, within derived tolerances."""

from __future__ import annotations

import functools
import importlib
import operator
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import Data, Net, distinct_micro_batches
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.oracle.tolerance.runs import RunTolerance, TwoRunTolerance
from ipu_conformance.oracle.training import train as oracle
from ipu_conformance.oracle.training.execution import Rounding
from ipu_conformance.run import RunConfig, RunRecord, learning_rate

NETS = ("linear", "mlp", "convnet", "bn_convnet", "residual", "tied_weights")
CUT = NETS[1:]
"""The nets that can be cut into stages."""
SCHEDULES = {"pipelined": "grouped", "sharded": "sequential"}
"""How stages are executed with pipelining on and off, and the schedules of configurations that it stands for."""


AnyNet = Union[str, Net]
"""A net, or its name among the suite's."""


def net_of(name: AnyNet) -> Net:
    """The net of a name."""
    return nets.NETS[name]() if isinstance(name, str) else name


def cut(name: AnyNet, config: RunConfig, stages: int, schedule: str = "grouped") -> RunConfig:
    """A configuration with a net cut into stages, under a schedule or one of the words of SCHEDULES."""
    return replace(config, stages=net_of(name).cut(stages), schedule=SCHEDULES.get(schedule, schedule))


def uncut(config: RunConfig) -> RunConfig:
    """The same configuration with all layers on one stage."""
    return replace(config, stages=(), devices=(), schedule="grouped", recompute=False)


def inference(config: RunConfig) -> RunConfig:
    """The same configuration, steps included, without training."""
    return replace(config.inference(), steps=config.steps)


def ipus(config: RunConfig) -> pytest.MarkDecorator:
    """The mark of a case that needs the IPUs of a configuration, which are reserved in powers of two."""
    each = max(config.devices, default=config.number_of_stages - 1) + 1
    if config.output_layout == "tensorflow":
        each = _power_of_two(each)
    return pytest.mark.ipus(_power_of_two(each * config.replicas))


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def configured(rows: Mapping[str, RunConfig]) -> List[Any]:
    """Configurations as parameters, each with its id and the IPUs that it needs."""
    return [pytest.param(config, id=word, marks=ipus(config)) for word, config in rows.items()]


counts_id = operator.attrgetter("counts_id")
"""The id of a case that differs from its neighbours by the counts of its configuration."""


def reduced(config: RunConfig, reduction: str, rate: float) -> RunConfig:
    """The same configuration with one reduction for accumulation and replicas, and a constant learning rate."""
    rule = learning_rate(base=rate)
    return replace(config, accumulation_reduction=reduction, replica_reduction=reduction, learning_rate=rule)


def data_of(name: AnyNet, config: RunConfig, steps: Optional[int] = None) -> Data:
    """The data of a run, or of its first steps."""
    whole = distinct_micro_batches(net_of(name), config)
    return Data(whole.inputs[:steps], whole.labels[:steps])


@functools.lru_cache(maxsize=None)
def expected(name: AnyNet, config: RunConfig, steps: Optional[int] = None) -> RunRecord:
    """The oracle's record of a training, or of its first steps."""
    data, config = data_of(name, config, steps), replace(config, steps=steps or config.steps)
    return oracle.train(net_of(name), data, config)


@functools.lru_cache(maxsize=None)
def tolerance(name: AnyNet, config: RunConfig, steps: Optional[int] = None) -> RunTolerance:
    """The tolerance of a training; unless updates happen inside the pipeline, one serves every cut."""
    data, config = data_of(name, config, steps), replace(config, steps=steps or config.steps)
    if config.update != "micro_batch":
        config = uncut(config)
    return run_tolerance.for_run(net_of(name), data, config)


@functools.lru_cache(maxsize=None)
def inferred(name: AnyNet, config: RunConfig) -> Any:
    """The oracle's outputs of each step of an inference, and their tolerances; a cut changes neither."""
    return run_tolerance.for_inference(net_of(name), data_of(name, config), uncut(config))


@functools.lru_cache(maxsize=None)
def statistics_by_replica(name: AnyNet, config: RunConfig) -> Any:
    """The oracle's running statistics by (replica, name), and their tolerances; a cut changes neither."""
    net, data, config = net_of(name), data_of(name, config), uncut(config)

    def statistics(rounding: Optional[Rounding]) -> Dict[run_tolerance.Path, np.ndarray]:
        held = oracle.train(net, data, config, rounding=rounding).statistics_by_replica or ()
        return {(replica, word): value for replica, each in enumerate(held) for word, value in each.items()}

    return run_tolerance.kept_reference("statistics by replica", net, data, config, statistics)


@functools.lru_cache(maxsize=None)
def optimizer_state(name: AnyNet, config: RunConfig) -> Any:
    """The oracle's optimizer state by (state, weight), and its tolerances; a cut changes neither."""
    return run_tolerance.for_optimizer_state(net_of(name), data_of(name, config), uncut(config))


class Runs:
    """What the cases of a framework have run so far: those that ask for the same run share it."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self._records: Dict[Any, RunRecord] = {}

    @property
    def driver(self) -> Any:
        """The framework's driver; it imports the vendor's package, so it comes after the target was chosen."""
        return importlib.import_module(f"ipu_conformance.frameworks.{self.framework}")

    def _run(self, way: str, name: AnyNet, config: RunConfig, **options: Any) -> RunRecord:
        key = (way, name, config, repr(sorted(options.items())))
        if key not in self._records:
            run = getattr(self.driver, way)
            self._records[key] = run(net_of(name), config, data_of(name, config), **options)
        return self._records[key]

    def train(self, name: AnyNet, config: RunConfig, **options: Any) -> RunRecord:
        """The record of training a net on the target, with options of the driver."""
        return self._run("train", name, config, **options)

    def infer(self, name: AnyNet, config: RunConfig) -> RunRecord:
        """The record of inference from the net's initial weights on the target."""
        return self._run("infer", name, config)

    def native(self, name: AnyNet, config: RunConfig) -> RunRecord:
        """The record of training a net with the stock framework."""
        return self._run("native", name, config)

    def compare(self, name: AnyNet, config: RunConfig, fields: Sequence[str] = (), **options: Any) -> RunRecord:
        """Train on the target, compare with the oracle, and return the target's record."""
        __tracebackhide__ = True
        run = self.train(name, config, **options)
        fields = fields or ["losses", "outputs", "weights"] + (["statistics"] if net_of(name).statistics else [])
        check.runs_equivalent(
            actual=run,
            expected=expected(name, config),
            tolerance=tolerance(name, config),
            fields=fields,
            net=net_of(name),
        )
        return run

    def compare_state(self, name: AnyNet, config: RunConfig, **options: Any) -> None:
        """The optimizer's state after a training on the target is the oracle's."""
        __tracebackhide__ = True
        actual = self.train(name, config, **options).optimizer_state or {}
        values, allowed = optimizer_state(name, config)
        check.holds(actual, f"the optimizer {config.optimizer.name} keeps no state")
        for state, by_weight in actual.items():
            for weight, value in by_weight.items():
                key = (state, weight)
                what = f"the {state} of {weight}"
                check.close(actual=value, expected=values[key], tolerance=allowed[key], what=what)

    def compare_inference(self, name: AnyNet, config: RunConfig) -> None:
        """Every output of an inference on the target is the oracle's, in its place."""
        __tracebackhide__ = True
        outputs_as_specified(self.infer(name, config).outputs, *inferred(name, config))

    def compare_trainings(self, name: AnyNet, config: RunConfig, other: RunRecord, fields: Sequence[str] = ()) -> None:
        """A training on the target and another run of it agree, each with errors of its own."""
        __tracebackhide__ = True
        check.runs_equivalent(
            actual=self.train(name, config),
            expected=other,
            tolerance=TwoRunTolerance(tolerance(name, config)),
            net=net_of(name),
            **({"fields": fields} if fields else {}),
        )


def outputs_as_specified(actual: Any, values: Mapping[int, Any], allowed: Mapping[int, Any]) -> None:
    """As many outputs come back as there are steps, each within its tolerance."""
    __tracebackhide__ = True
    check.equal(actual=len(actual or ()), expected=len(values), what="the number of steps that give outputs")
    for step, value in values.items():
        check.close(actual=actual[step], expected=value, tolerance=allowed[step], what=f"the outputs of step {step}")


def native_reference(
    exact: Sequence[Any], plain: Sequence[Any], reordered: Sequence[Sequence[Any]], what: str
) -> List[Tuple[np.ndarray, run_tolerance.ArrayTolerance]]:
    """Arrays of a native run in float64, each with the tolerance that float32 needs.

    The deviations are those of float32 runs with ``what`` in other orders: the same mathematics with other roundings.
    """
    values, fixed, *rounded = (dict(enumerate(run)) for run in (exact, plain, *reordered))
    how = f"float32, {len(rounded)} native runs with {what} in other orders"
    allowed = run_tolerance.from_runs(values, rounded, fixed, how)
    return [(value, allowed[number]) for number, value in values.items()]
