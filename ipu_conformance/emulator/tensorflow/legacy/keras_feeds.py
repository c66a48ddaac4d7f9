"""What fit, evaluate and predict of the old models are fed: mini-batches of whole runs on all replicas."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import tensorflow as tf

from ipu_conformance.emulator.tensorflow.refusals import legacy as refusals


class Call(NamedTuple):
    """A call of fit, evaluate or predict: and what its steps are called."""

    method: str
    steps: str


FIT, EVALUATE, PREDICT = Call("fit", "steps_per_epoch"), Call("evaluate", "steps"), Call("predict", "steps")


def batches(x: Any, y: Any, batch_size: Optional[int]) -> Any:
    """Arrays as a data set of whole mini-batches, in their order; a list has one for each input or output."""
    inputs, targets = (tuple(each) if isinstance(each, list) else each for each in (x, y))
    data = tf.data.Dataset.from_tensor_slices(inputs if y is None else (inputs, targets))
    return data.batch(batch_size or 32, drop_remainder=True)


def sorted_out(dataset: Any, inputs: int, outputs: int) -> Any:
    """The data set with inputs and targets apart; a flat tuple has the inputs first, as many as the model has."""
    element = dataset.element_spec
    if not isinstance(element, tuple) or any(isinstance(part, (tuple, dict)) for part in element):
        return dataset

    def sort(*parts: Any) -> Any:
        return tuple(
            group if number > 1 else group[0]
            for group, number in ((parts[:inputs], inputs), (parts[inputs:], outputs))
            if group
        )

    return dataset.map(sort)


def mini_batches(
    call: Call, model: str, number: Optional[int], steps: Optional[int], steps_per_run: Optional[int],
    accumulated: int, replicas: int, arrays: bool,
) -> int:  # fmt: skip
    """The mini-batches of an epoch; an array is cut to whole runs, and a data set that does not fit is refused."""
    run = accumulated * replicas * (steps_per_run or 1)
    if steps is not None:
        refusals.UNEVEN_STEPS(
            model=model, name=call.steps, steps=steps, group=replicas * (steps_per_run or 1), replicas=replicas
        )
        if number is not None:
            refusals.EXHAUSTED(name=call.steps, steps=steps, accumulated=accumulated, number=number)
        return steps * accumulated
    refusals.STEPS_NEEDED(name=call.steps, number=number)
    assert number is not None
    refusals.TOO_FEW_MINI_BATCHES(number=number, run=run, accumulated=accumulated, replicas=replicas)
    if arrays and number % run:
        tf.get_logger().warning(
            "The number of mini-batches (%d) is no multiple of the %d of a run on all replicas: %d are dropped.",
            number, run, number % run,
        )  # fmt: skip
        return number - number % run
    refusals.UNEVEN_MINI_BATCHES(model=model, number=number, run=run)
    return number
