"""The tolerance of a whole training run, measured on the oracle itself.

The oracle runs several times with random rounding after every op. For an array of n values, run r deviates from the
exact run by d[r, i]; s[i] is the root mean square over runs and S the one over runs and values. Values of one array
have noise of one origin, so S is known far better than any s[i]: its number of degrees of freedom is runs x m, where
m = tr(C)^2 / tr(C^2) counts the independent values among the n (C is their covariance, and both traces follow from
the products of the runs' deviations). Then

    allowed[i]  = t * max(s[i], S)    t: Student's quantile at rate / (2 n), with runs x m degrees of freedom
    allowed_rms = sqrt(F) * S         F: Fisher's quantile at the same rate, with m over runs x m

where ``rate`` is the false-alarm rate of the run, shared by all its arrays and by the two bounds. A device that
rounds to nearest does so the same way every time, so its errors may add up where random ones cancel (updates below
half a spacing are lost): unless stochastic rounding is on, twice the deviation of a run that rounds to nearest is
allowed too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Hashable, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np

from ipu_conformance.nets import Data, Net
from ipu_conformance.oracle.convergence.distributions import f_quantile_above, student_quantile_above
from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.tolerance import cache as tolerance_cache
from ipu_conformance.oracle.tolerance.rounding import RandomRounding, mantissa, nearest, stored
from ipu_conformance.oracle.training.execution import Rounding
from ipu_conformance.oracle.training.train import infer, train
from ipu_conformance.run import Array, RunConfig, RunRecord, Weights

FALSE_ALARM_RATE = 1e-6
"""How often a correct device may fail the comparison of a whole run."""
LEAST_RUNS = 8

Path = Tuple[Union[str, int], ...]
"""Where an array is in a record: a field, then a step or an update, then a name."""
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class ArrayTolerance:
    """How far each value of one array of a run may be off, and how far all of them in the root mean square."""

    allowed: Array
    allowed_rms: float
    origin: str

    def explain(self) -> str:
        """Where the tolerance comes from."""
        return self.origin


@dataclass(frozen=True)
class RunTolerance:
    """A tolerance in the place of every array of a run record."""

    losses: Tuple[ArrayTolerance, ...]
    outputs: Tuple[ArrayTolerance, ...]
    weights: Mapping[str, ArrayTolerance]
    gradients: Tuple[Mapping[str, ArrayTolerance], ...]
    statistics: Mapping[str, ArrayTolerance]
    false_alarm_rate: float
    runs: int

    def explain(self) -> str:
        """Where the tolerances come from."""
        return f"{self.runs} oracle runs with random rounding, false-alarm rate {self.false_alarm_rate:g} over the run"


class TwoRunTolerance:
    """The tolerance between two runs that may each be as far from the exact one as ``each`` allows."""

    def __init__(self, each: RunTolerance) -> None:
        self._each = each

    def __getattr__(self, field: str) -> Any:
        tolerances = getattr(self._each, field)
        if isinstance(tolerances, Mapping):
            return {name: _doubled(each) for name, each in tolerances.items()}
        return tuple(map(_doubled, tolerances))


def _doubled(each: ArrayTolerance) -> ArrayTolerance:
    return ArrayTolerance(2 * each.allowed, 2 * each.allowed_rms, f"twice, for two runs, {each.origin}")


def for_run(
    net: Net,
    data: Data,
    config: RunConfig,
    dtype: Optional[str] = None,
    runs: int = LEAST_RUNS,
    *,
    weights: Optional[Weights] = None,
    false_alarm_rate: float = FALSE_ALARM_RATE,
    cache: bool = True,
) -> RunTolerance:
    """The tolerance of training ``net`` on ``data``, at the precision of ``config`` unless ``dtype`` is given.

    It is measured once and kept, under a hash of all it depends on; those of the suite come with it.
    """
    config = config if dtype is None else replace(config, dtype=dtype)
    mantissa(config.dtype)
    if runs < LEAST_RUNS:
        raise OracleError(f"{runs} runs tell too little of the noise; use at least {LEAST_RUNS}")
    if not 0.0 < false_alarm_rate < 1.0:
        raise OracleError(f"the false-alarm rate is {false_alarm_rate}; it must lie between 0 and 1, both excluded")
    start = net.initial_weights(config.seed) if weights is None else weights

    def arrays(rounding: Optional[Rounding]) -> Mapping[Path, Array]:
        return arrays_of(train(net, data, config, weights=start, rounding=rounding))

    def measured() -> Dict[Path, ArrayTolerance]:
        return reference(net, config, arrays, runs, false_alarm_rate)[1]

    key = tolerance_cache.key("training", net, data, config, start, runs, false_alarm_rate) if cache else None
    return assembled(_kept(key, measured), runs, false_alarm_rate)


def _kept(key: Optional[str], measured: Callable[[], Dict[Path, ArrayTolerance]]) -> Dict[Path, ArrayTolerance]:
    """The tolerances under a key, measured if there are none; always measured without a key."""
    tolerances = tolerance_cache.read(key) if key is not None else None
    if tolerances is None:
        tolerances = measured()
        if key is not None:
            tolerance_cache.write(key, tolerances)
    return tolerances


def arrays_of(record: RunRecord) -> Dict[Path, Array]:
    """Every array of a record that a tolerance is given for, by its place."""
    result: Dict[Path, Array] = {}
    for field in ("losses", "outputs", "weights", "gradients", "statistics"):
        value = getattr(record, field)
        _collect((field,), value if value is not None else (), result)
    return result


def estimate(exact: Array, deviations: Array, fixed: Optional[Array], rate: float, origin: str) -> ArrayTolerance:
    """The tolerance of one array from the deviations of runs [run, ...], for a false-alarm rate of its own.

    ``fixed`` is the deviation of the run that rounds to nearest, where the device does.
    """
    runs, size = len(deviations), max(exact.size, 1)
    rows = deviations.reshape(runs, -1)
    each = np.sqrt(np.mean(rows**2, axis=0)).reshape(exact.shape)
    whole = math.sqrt(float(np.mean(rows**2))) if rows.size else 0.0
    independent = independent_values(rows)
    quantile = student_quantile_above(rate / 2 / (2 * size), runs * independent)
    allowed = quantile * np.maximum(each, whole)
    allowed_rms = math.sqrt(f_quantile_above(rate / 2, independent, runs * independent)) * whole
    if fixed is not None:
        allowed = np.maximum(allowed, 2.0 * np.abs(fixed))
        allowed_rms = max(allowed_rms, 2.0 * math.sqrt(float(np.mean(fixed**2))) if fixed.size else 0.0)
    why = f"{origin}: {quantile:.2g} standard deviations of {whole:.1e}, {size} values of which {independent:.2g} free"
    return ArrayTolerance(allowed, allowed_rms, why)


def independent_values(rows: Array) -> float:
    """How many of the values of runs [run, value] are independent: 1 if all move together, their number if none do."""
    runs, size = rows.shape
    products = rows @ rows.T
    trace = float(np.trace(products)) / runs
    square = float(np.sum(products**2) - np.sum(np.diag(products) ** 2)) / (runs * (runs - 1))
    spread = float(np.var(np.diag(products), ddof=1))
    by_pairs = trace**2 / square if square > 0.0 else math.inf
    by_spread = 2.0 * trace**2 / spread if spread > 0.0 else math.inf
    return min(max(min(by_pairs, by_spread), 1.0), float(size)) if trace else 1.0


def from_runs(
    exact: Mapping[Key, Array],
    rounded: Sequence[Mapping[Key, Array]],
    fixed: Optional[Mapping[Key, Array]],
    how: str,
    rate: float = FALSE_ALARM_RATE,
) -> Dict[Key, ArrayTolerance]:
    """The tolerance of every array of a run, from the same arrays of runs with random rounding.

    ``fixed`` is the run that rounds to nearest, where the device does; ``how`` names the precision and the runs.
    """
    origin = f"{how}, false-alarm rate {rate:g} a run"
    return {
        key: estimate(
            value,
            np.stack([_deviation(run[key], value, key) for run in rounded]),
            None if fixed is None else _deviation(fixed[key], value, key),
            rate / len(exact),
            origin,
        )
        for key, value in exact.items()
    }


def reference(
    net: Net,
    config: RunConfig,
    arrays: Callable[[Optional[Rounding]], Mapping[Key, Array]],
    runs: int = LEAST_RUNS,
    rate: float = FALSE_ALARM_RATE,
) -> Tuple[Mapping[Key, Array], Dict[Key, ArrayTolerance]]:
    """The arrays of an exact run, and their tolerances; ``arrays(rounding)`` gives those of a run with rounding."""
    exact = arrays(None)
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is found in what it leaves behind, and named there
        rounded = [arrays(RandomRounding(net, config, run)) for run in range(runs)]
        fixed = None if config.stochastic_rounding else arrays(lambda x, site: nearest(x, stored(site, config)))
    how = f"{config.dtype}, {runs} oracle runs with random rounding after every op"
    return exact, from_runs(exact, rounded, fixed, how, rate)


def kept_reference(
    what: str,
    net: Net,
    data: Data,
    config: RunConfig,
    arrays: Callable[[Optional[Rounding]], Mapping[Path, Array]],
    given: Optional[Weights] = None,
) -> Tuple[Mapping[Path, Array], Dict[Path, ArrayTolerance]]:
    """The arrays of an exact run, and their tolerances, which are measured once.

    ``what`` says in a word what ``arrays`` gives; it may depend on the net, the data, the configuration and ``given``.
    """
    start = net.initial_weights(config.seed) if given is None else given
    key = tolerance_cache.key(what, net, data, config, start, LEAST_RUNS, FALSE_ALARM_RATE)
    tolerances = _kept(key, lambda: reference(net, config, arrays)[1])
    return arrays(None), tolerances


def for_inference(
    net: Net,
    data: Data,
    config: RunConfig,
    *,
    weights: Optional[Weights] = None,
    statistics: Optional[Weights] = None,
) -> Tuple[Mapping[int, Array], Dict[int, ArrayTolerance]]:
    """The outputs of each step of an inference, and their tolerances."""

    def outputs(rounding: Optional[Rounding]) -> Mapping[Path, Array]:
        record = infer(net, data, config, weights=weights, statistics=statistics, rounding=rounding)
        return {(step,): value for step, value in enumerate(record.outputs or ())}

    start = net.initial_weights(config.seed) if weights is None else weights
    given = {**start, **(net.initial_statistics() if statistics is None else statistics)}
    values, tolerances = kept_reference("inference", net, data, config, outputs, given)
    return _by_last(values), _by_last(tolerances)


def _by_last(arrays: Mapping[Path, Value]) -> Dict[int, Value]:
    return {int(path[-1]): each for path, each in arrays.items()}


def for_optimizer_state(
    net: Net, data: Data, config: RunConfig
) -> Tuple[Mapping[Path, Array], Dict[Path, ArrayTolerance]]:
    """The optimizer's state after a training by (state, weight), and its tolerances."""

    def states(rounding: Optional[Rounding]) -> Mapping[Path, Array]:
        by_name = train(net, data, config, rounding=rounding).optimizer_state or {}
        return {(state, weight): value for state, held in by_name.items() for weight, value in held.items()}

    return kept_reference("optimizer state", net, data, config, states)


def _deviation(rounded: Array, exact: Array, key: Any) -> Array:
    with np.errstate(invalid="ignore"):
        deviation = rounded - exact
    if not np.isfinite(deviation).all():
        where = "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
        raise OracleError(
            f"{where} overflows at this precision, so that no tolerance exists; use smaller values or a loss scale"
        )
    return deviation


def _collect(path: Path, value: Any, result: Dict[Path, Array]) -> None:
    if isinstance(value, Mapping):
        for name in value:
            _collect((*path, name), value[name], result)
    elif isinstance(value, tuple):
        for number, each in enumerate(value):
            _collect((*path, number), each, result)
    else:
        result[path] = np.asarray(value, np.float64)


def assembled(
    arrays: Mapping[Path, ArrayTolerance], runs: int = LEAST_RUNS, rate: float = FALSE_ALARM_RATE
) -> RunTolerance:
    """The tolerance of a run from those of its arrays by their places."""
    updates = 1 + max((int(path[1]) for path in arrays if path[0] == "gradients"), default=-1)
    return RunTolerance(
        losses=tuple(_under(arrays, "losses").values()),
        outputs=tuple(_under(arrays, "outputs").values()),
        weights=_under(arrays, "weights"),
        gradients=tuple(_under(arrays, "gradients", number) for number in range(updates)),
        statistics=_under(arrays, "statistics"),
        false_alarm_rate=rate,
        runs=runs,
    )


def _under(arrays: Mapping[Path, ArrayTolerance], *place: Union[str, int]) -> Dict[str, ArrayTolerance]:
    """The tolerances right under a place, by the last part of their path."""
    depth = len(place)
    return {str(path[depth]): each for path, each in arrays.items() if path[:depth] == place}
