"""Single ops on TensorFlow: many calls in one function that an IPU strategy runs, once for each micro-batch.

Calls of an op that differ in values alone are one call of the function, which is then run more often: tracing costs far
more than running.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from ipu_conformance.errors import Inexpressible
from ipu_conformance.frameworks import OpCall, OpResult

Pulled = Tuple[List[tf.Tensor], List[tf.Tensor]]
"""The outputs of a call, and the gradients of the inputs whose gradients are wanted."""


@dataclass
class _Site:
    """A place in the function where an op is called, and what is fed to it, run by run."""

    call: OpCall
    runs: List[Tuple[int, int]] = field(default_factory=list)
    """The number of a call and a micro-batch of it."""

    def fed(self, calls: Sequence[OpCall], run: int) -> List[np.ndarray]:
        """The inputs of a run, then the factors; a site with fewer runs than others starts over."""
        number, micro_batch = self.runs[run % len(self.runs)]
        factors = calls[number].factors or tuple(tuple(map(np.zeros_like, each)) for each in self.call.factors)
        return [*calls[number].inputs[micro_batch], *(factors[micro_batch] if factors else ())]


def run_ops(calls: Sequence[OpCall], dtype: str) -> Sequence[OpResult]:
    """Run calls of ops in one function, and their gradients by TensorFlow's own differentiation on the device."""
    sites = _sites(calls)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope(), _without_optimizer():

        @tf.function(jit_compile=True, autograph=False)
        def step(flat: Sequence[tf.Tensor]) -> List[Pulled]:
            arriving = iter(flat)
            return [_called(site.call, arriving) for site in sites]

        runs = []
        for run in range(max(len(site.runs) for site in sites)):
            arrays = [array for site in sites for array in site.fed(calls, run)]
            runs.append(strategy.run(step, args=[[_tensor(array, dtype) for array in arrays]]))
    results: Dict[int, OpResult] = {}
    for place, site in enumerate(sites):
        for run, (number, _) in enumerate(site.runs):
            outputs, gradients = ([value.numpy() for value in values] for values in runs[run][place])
            results[number] = _with(results.get(number), calls[number], outputs, gradients)
    return [results[number] for number in range(len(calls))]


def _with(
    earlier: Optional[OpResult], call: OpCall, outputs: Sequence[np.ndarray], gradients: Sequence[np.ndarray]
) -> OpResult:
    """A call's result with that of one more micro-batch."""
    pulled = dict(zip(call.wanted, gradients))
    if earlier is None:
        return OpResult((tuple(outputs),), pulled)
    with np.errstate(all="ignore"):
        summed = {place: earlier.gradients[place] + value for place, value in pulled.items()}
    return OpResult((*earlier.outputs, tuple(outputs)), summed)


def _sites(calls: Sequence[OpCall]) -> List[_Site]:
    sites: Dict[Any, _Site] = {}
    for number, call in enumerate(calls):
        key = call.structure
        site = sites.setdefault(key, _Site(call))
        if call.wanted and not site.call.wanted:
            site.call = call
        site.runs.extend((number, micro_batch) for micro_batch in range(len(call.inputs)))
    return list(sites.values())


@contextlib.contextmanager
def _without_optimizer() -> Iterator[None]:
    """Functions inside run as they are written: optimizing one that runs a few times does not pay."""
    options = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, **options})


def _called(call: OpCall, arriving: Iterator[tf.Tensor]) -> Pulled:
    tensors = [next(arriving) for _ in call.inputs[0]]
    factors = [next(arriving) for _ in (call.factors[0] if call.factors else ())]
    watched = [tensors[place] for place in call.wanted]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs = _sequence(call.ask(tf, *tensors, **call.attributes))
    if not watched:
        return outputs, []
    pairs = [(output, factor) for output, factor in zip(outputs, factors) if output.dtype.is_floating]
    pulled = tape.gradient(
        [output for output, _ in pairs],
        watched,
        output_gradients=[tf.cast(factor, output.dtype) for output, factor in pairs],
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return outputs, [tf.convert_to_tensor(gradient) for gradient in pulled]


_REASONS: Dict[Any, Optional[str]] = {}


def why_inexpressible(call: OpCall, dtype: str) -> Optional[str]:
    """Why TensorFlow cannot express a call; it is asked once, in a graph that is never run."""
    key = call.structure
    if key not in _REASONS:
        _REASONS[key] = None
        with tf.Graph().as_default():
            try:
                call.ask(tf, *(_tensor(value, dtype) for value in call.inputs[0]), **call.attributes)
            except Inexpressible as reason:
                _REASONS[key] = str(reason)
    return _REASONS[key]


def _tensor(value: np.ndarray, dtype: str) -> tf.Tensor:
    if value.dtype.kind == "f":
        return tf.constant(value, dtype)
    return tf.constant(value, tf.int32 if value.dtype == np.int64 else value.dtype)


def _sequence(outputs: Any) -> List[tf.Tensor]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
