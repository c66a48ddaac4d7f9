"""Single ops on TensorFlow: many calls in one function that an IPU strategy runs, once for each micro-batch."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from ipu_conformance.errors import Inexpressible
from ipu_conformance.frameworks import OpCall, OpResult


def run_ops(calls: Sequence[OpCall], dtype: str) -> Sequence[OpResult]:
    """Run calls of ops in one function, and their gradients by TensorFlow's own differentiation on the device."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():

        @tf.function(jit_compile=True, autograph=False)
        def step(flat: Sequence[tf.Tensor]) -> List[Tuple[List[tf.Tensor], List[tf.Tensor]]]:
            arriving = iter(flat)
            return [_called(call, arriving) for call in calls]

        runs = [strategy.run(step, args=[_fed(calls, number, dtype)]) for number in range(len(calls[0].inputs))]
    results = []
    for number, call in enumerate(calls):
        by_micro_batch = [run[number] for run in runs]
        outputs = tuple(tuple(value.numpy() for value in values) for values, _ in by_micro_batch)
        gradients = [[value.numpy() for value in pulled] for _, pulled in by_micro_batch]
        results.append(
            OpResult(outputs, {place: sum(each[i] for each in gradients) for i, place in enumerate(call.wanted)})
        )
    return results


def _called(call: OpCall, arriving: Any) -> Tuple[List[tf.Tensor], List[tf.Tensor]]:
    tensors = [next(arriving) for _ in call.inputs[0]]
    factors = [next(arriving) for _ in (call.factors[0] if call.factors else ())]
    watched = [tensors[place] for place in call.wanted]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs = _sequence(call.ask(tf, *tensors, **call.attributes))
    pairs = [(output, factor) for output, factor in zip(outputs, factors) if output.dtype.is_floating]
    if not watched:
        return outputs, []
    pulled = tape.gradient(
        [output for output, _ in pairs],
        watched,
        output_gradients=[tf.cast(factor, output.dtype) for output, factor in pairs],
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return outputs, [tf.convert_to_tensor(gradient) for gradient in pulled]


def why_inexpressible(call: OpCall, dtype: str) -> Optional[str]:
    """Why TensorFlow cannot express a call; it is asked in a graph that is never run."""
    with tf.Graph().as_default():
        try:
            call.ask(tf, *(_tensor(value, dtype) for value in call.inputs[0]), **call.attributes)
        except Inexpressible as reason:
            return str(reason)
    return None


def _fed(calls: Sequence[OpCall], micro_batch: int, dtype: str) -> List[tf.Tensor]:
    arrays: List[np.ndarray] = []
    for call in calls:
        arrays.extend(call.inputs[micro_batch])
        arrays.extend(call.factors[micro_batch] if call.factors else ())
    return [_tensor(value, dtype) for value in arrays]


def _tensor(value: np.ndarray, dtype: str) -> tf.Tensor:
    if value.dtype.kind == "f":
        return tf.constant(value, dtype)
    return tf.constant(value, tf.int32 if value.dtype == np.int64 else value.dtype)


def _sequence(outputs: Any) -> List[tf.Tensor]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
