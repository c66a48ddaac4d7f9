"""What Keras models on the IPU refuse, and the options of their queues."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import cut, ipus
from .nets import MLP, PLAIN, Keras

X, Y = np.arange(36, dtype=np.float32).reshape(6, 6) / 36, np.zeros(6, np.int32)

COUNT = "gradient_accumulation_steps_per_replica"

each_phase = pytest.mark.parametrize("phase", ["fit", "evaluate", "predict"])


def compiled(keras: Keras, **settings: Any) -> Any:
    """A model that is ready to run."""
    model = keras.build()
    keras.compile(model, PLAIN, **{"steps_per_execution": 1, **settings})
    return model


def run(model: Any, phase: str, data: Any, steps: int = 0, **settings: Any) -> Any:
    """Fit, evaluate or predict, for so many steps if a number is given."""
    number = {"steps_per_epoch" if phase == "fit" else "steps": steps} if steps else {}
    return getattr(model, phase)(data, verbose=0, **number, **settings)


def batches(tf: Any, **settings: Any) -> Any:
    """A data set of three batches."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(2, **{"drop_remainder": True, **settings})


def uncounted(tf: Any) -> Any:
    """The same data set, whose size TensorFlow does not know."""
    return batches(tf).filter(lambda x, y: True)


def sequence(tf: Any) -> Any:
    """The same batches as a Keras sequence."""
    members = {"__len__": lambda self: 3, "__getitem__": lambda self, index: (X[:2], Y[:2])}
    return type("Batches", (tf.keras.utils.Sequence,), members)()


NO_SHAPE = r"shape \(None, 6\) (which )?is not fully defined.*set `drop_remainder=True`"
UNFIT: Dict[str, Tuple[Callable[[Any], Any], int, str]] = {
    "generator": (lambda tf: ((X[:2], Y[:2]) for _ in itertools.count()), 2, "generator"),
    "sequence": (sequence, 0, "Keras sequences|not compatible"),
    "smaller-last-batch": (lambda tf: batches(tf, drop_remainder=False), 0, NO_SHAPE),
    "unknown-size": (uncounted, 0, "size of the data"),
    "endless": (lambda tf: batches(tf).repeat(), 0, "steps"),
}


@each_phase
@pytest.mark.parametrize("name", UNFIT)
def test_data_that_cannot_be_fed_is_refused(keras: Keras, tf: Any, name: str, phase: str) -> None:
    """Generators, sequences, batches of an open size and data of an open length are refused, with the way out."""
    make, steps, message = UNFIT[name]

    with keras.scope(PLAIN), check.raises(ValueError, match=message, what=f"{phase} with {name} data"):
        run(compiled(keras), phase, make(tf), steps)


@each_phase
@pytest.mark.parametrize(("samples", "size"), [(5, 2), (6, 4), (3, 5)])
def test_partial_batches_of_arrays_are_refused(keras: Keras, phase: str, samples: int, size: int) -> None:
    """Samples that do not fill the last batch are an error."""
    labels: Any = {} if phase == "predict" else {"y": Y[:samples]}
    message = rf"(batch size \(|currently set to ){size}\)"

    with keras.scope(PLAIN), check.raises(ValueError, match=message, what=f"{phase} with {samples} samples"):
        run(compiled(keras), phase, X[:samples], batch_size=size, **labels)


@each_phase
def test_a_number_of_steps_makes_an_unknown_size_known(keras: Keras, tf: Any, phase: str) -> None:
    """A data set of unknown size is accepted with steps, and used as one of that size."""
    with keras.scope(PLAIN):
        results = [run(compiled(keras), phase, data, 3) for data in (uncounted(tf), batches(tf))]
    actual, expected = (np.asarray(each.history["loss"] if phase == "fit" else each) for each in results)

    check.identical(actual=actual, expected=expected, what=f"the result of {phase}")


@each_phase
@pytest.mark.parametrize("how", ["model", "functions"])
def test_eager_execution_is_refused(keras: Keras, tf: Any, how: str, phase: str) -> None:
    """A model that was compiled with run_eagerly=True cannot be run, nor any model while tf.functions run eagerly."""
    with keras.scope(PLAIN):
        model = compiled(keras, run_eagerly=True if how == "model" else None)
        tf.config.run_functions_eagerly(how == "functions")
        try:
            with check.raises(RuntimeError, match=r"cannot (be )?run eagerly", what=f"an eager {phase}"):
                run(model, phase, keras.dataset(PLAIN))
        finally:
            tf.config.run_functions_eagerly(False)


def test_a_model_is_compiled_first(keras: Keras) -> None:
    """fit of a model that was never compiled is Keras' own error."""
    with keras.scope(PLAIN), check.raises(RuntimeError, match="must compile", what="fit of a model never compiled"):
        keras.build().fit(keras.dataset(PLAIN), verbose=0)


@pytest.mark.parametrize(("method", "key"), [
    *(("set_pipelining_options", key) for key in (
        "gradient_accumulation_count", "infeed_queue", "outfeed_queue", "optimizer_function", "computational_stages",
        "repeat_count", "inputs",
    )),
    ("set_gradient_accumulation_options", "opt"), ("set_gradient_accumulation_options", "num_mini_batches"),
    ("set_infeed_queue_options", "dataset"), ("set_outfeed_queue_options", "outfeed_mode"),
])  # fmt: skip
def test_reserved_options_are_refused(keras: Keras, method: str, key: str) -> None:
    """What Keras sets itself is refused with the name of the key."""
    counts = {} if "queue" in method else {COUNT: 4}
    with keras.scope(PLAIN), check.raises(ValueError, match=f"Found `{key}` key in", what=f"{method} with {key}"):
        getattr(keras.build("sequential"), method)(**counts, **{key: 1})


METHOD, MAPPING = "gradient_accumulation_reduction_method", "device_mapping"
METRICS, ASSIGNMENT = "replicated_metric_reduction_method", "pipeline_stage_assignment"
WRONG: List[Tuple[str, Dict[str, Any], str, str, List[Any]]] = [
    ("set_gradient_accumulation_options", {}, COUNT, COUNT, [0, -1, 2.0, "2"]),
    ("set_gradient_accumulation_options", {COUNT: 2}, METHOD,
     r"Cannot parse .* as one of GradientAccumulationReductionMethod", ["median", "", 3, None]),
    ("set_pipelining_options", {COUNT: 4}, MAPPING, "`device_mapping`.* list of integers",
     ["01", [0, "1"], [0.0, 1.0], 1]),
    ("set_replication_options", {}, METRICS, "Cannot parse MEDIAN", ["MEDIAN"]),
    ("set_pipeline_stage_assignment", {}, ASSIGNMENT, "`pipeline_stage_assignment`",
     [(0, 0, 0, 1, 1, 1, 1), "0001111", [0.0] * 7, None]),
    ("set_pipeline_stage_assignment", {}, ASSIGNMENT, "does not match the number of layers", [[], [0] * 6, [0] * 8]),
]  # fmt: skip
"""A method, what else it is given, an argument that it refuses, how it is refused, and values: the net has 7 layers."""


@pytest.mark.parametrize(
    ("method", "others", "argument", "message", "value"),
    [pytest.param(*row, value, id=f"{row[2]}-{value}") for *row, values in WRONG for value in values],
)
def test_wrong_settings_are_refused(
    keras: Keras, method: str, others: Dict[str, Any], argument: str, message: str, value: Any
) -> None:
    """Counts, reductions, mappings and stages of chains are checked when they are set."""
    with keras.scope(PLAIN), check.raises(ValueError, match=message, what=f"{argument} {value!r}"):
        getattr(keras.build("sequential"), method)(**others, **{argument: value})


def piped(stages: int, count: int, schedule: str = "grouped", **changes: Any) -> RunConfig:
    """Two updates of a pipeline, each after so many micro-batches."""
    return replace(cut("mlp", PLAIN.with_counts(2, count), stages, schedule), **changes)


class Refused(NamedTuple):
    """A configuration and settings of a fit that is refused, with the name of TensorFlow's error, or an error."""

    config: RunConfig
    settings: Dict[str, Any]
    error: Any
    message: str


UNEVEN = r"`steps_per_execution` \({}\) must be a divisor of the number of batches \(7\)"
APART = "not divisible by `gradient_accumulation_steps_per_replica`"
REFUSED = {
    **{f"execution-{length}": Refused(PLAIN.with_counts(7), {"steps_per_execution": length}, ValueError,
                                      UNEVEN.format(length)) for length in (2, 4, 5)},
    **{f"accumulation-{length}-{count}": Refused(PLAIN.with_counts(12 // count, count), {"steps_per_execution": length},
                                                 RuntimeError, APART) for length, count in ((4, 3), (6, 4), (2, 4))},
    **{f"{schedule}-{stages}-{count}": Refused(piped(stages, count, schedule), {}, "FailedPreconditionError",
                                               f"must be a multiple of {multiple}, but it is {count}")
       for schedule, stages, count, multiple in (
           ("grouped", 2, 2, 4), ("grouped", 2, 6, 4), ("grouped", 3, 9, 6), ("interleaved", 2, 3, 2),
           ("interleaved", 3, 4, 3))},
    "interleaved-shared": Refused(piped(3, 6, "interleaved", device_iterations=1, devices=(0, 1, 0)), {},
                                  NotImplementedError, "nterleaved"),
    "no-count": Refused(piped(2, 4), {"options": lambda model: None}, (RuntimeError, ValueError), COUNT),
    "unknown-option": Refused(cut("mlp", PLAIN, 2), {"options": lambda model: model.set_pipelining_options(3, depth=2)},
                              TypeError, "depth"),
    "longer-mapping": Refused(
        piped(2, 4, device_iterations=1),
        {"options": lambda model: model.set_pipelining_options(4, device_mapping=[0, 1, 0])},
        ValueError, "device_mapping|Each stage must be mapped"),
    **{f"one-stage{end}": Refused(replace(PLAIN, stages=(0,) * 7, schedule="sequential"),
                                  {"kind": kind, "steps_per_execution": 1}, Exception,
                                  "at least two computational stages")
       for end, kind in (("", "functional"), ("-in-a-chain", "sequential"))},
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=ipus(row.config)) for name, row in REFUSED.items()])
def test_a_fit_that_cannot_be_run_is_refused(keras: Keras, tf: Any, name: str) -> None:
    """Executions divide the batches and hold whole accumulations; a pipeline is repeated and placed as it can be.

    Training needs a multiple of twice the stages when grouped, and of the stages when interleaved.
    """
    config, settings, error, message = REFUSED[name]
    kind = getattr(tf.errors, error) if isinstance(error, str) else error
    with check.raises(kind, match=message, what=f"fit ({name})"):
        keras.fit(config, **settings)


@pytest.mark.parametrize(("method", "depth"), [
    ("set_infeed_queue_options", {"prefetch_depth": 3}), ("set_outfeed_queue_options", {"buffer_depth": 2}),
], ids=["infeed", "outfeed"])  # fmt: skip
def test_the_depth_of_queues_changes_nothing(keras: Keras, method: str, depth: Any) -> None:
    """Queues may be deeper: the training is the same."""
    keras.check_fit(PLAIN, options=lambda model: getattr(model, method)(**depth))


@pytest.mark.ipus(2)
def test_a_pipeline_has_no_step_of_its_own(keras: Keras, tf: Any) -> None:
    """A pipelined model whose train_step is overridden is refused rather than trained without it."""
    config = cut("mlp", PLAIN, 2)
    own = type("Own", (tf.keras.Model,), {"train_step": lambda self, data: {}})
    with keras.scope(config):
        inputs = tf.keras.Input((6,))
        model = own(inputs, keras.called(MLP, keras.layers(MLP), inputs, config.stages))
        keras.compile(model, config, steps_per_execution=4)
        model.set_pipelining_options(4)
        with check.raises(RuntimeError, match="`train_step`", what="fit of a pipeline"):
            model.fit(np.ones((8, 6), np.float32), np.zeros(8), batch_size=2, verbose=0)
