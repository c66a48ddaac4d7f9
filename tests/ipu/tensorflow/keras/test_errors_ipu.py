"""What Keras models on the IPU refuse, and the options of their queues."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, Callable, Dict, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from ...training import cut
from .nets import MLP, PLAIN, Keras

X, Y = np.arange(36, dtype=np.float32).reshape(6, 6) / 36, np.zeros(6, np.int32)

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


def batches(tf: Any) -> Any:
    """A data set of three batches."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(2, drop_remainder=True)


def uncounted(tf: Any) -> Any:
    """The same data set, whose size TensorFlow does not know."""
    return batches(tf).filter(lambda x, y: True)


def sequence(tf: Any) -> Any:
    """The same batches as a Keras sequence."""

    class Batches(tf.keras.utils.Sequence):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return X[:2], Y[:2]

    return Batches()


UNFIT: Dict[str, Tuple[Callable[[Any], Any], int, str]] = {
    "generator": (lambda tf: ((X[:2], Y[:2]) for _ in itertools.count()), 2, "generator"),
    "sequence": (sequence, 0, "Keras sequences|not compatible"),
    "smaller-last-batch": (
        lambda tf: tf.data.Dataset.from_tensor_slices((X, Y)).batch(2),
        0,
        r"shape \(None, 6\) (which )?is not fully defined.*set `drop_remainder=True`",
    ),
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
    ("set_infeed_queue_options", "dataset"), ("set_outfeed_queue_options", "outfeed_mode"),
])  # fmt: skip
def test_reserved_options_of_queues_are_refused(keras: Keras, method: str, key: str) -> None:
    """What Keras sets itself is refused with the name of the key."""
    with keras.scope(PLAIN), check.raises(ValueError, match=f"Found `{key}` key in", what=method):
        getattr(compiled(keras), method)(**{key: 1})


@pytest.mark.parametrize(("method", "depth"), [
    ("set_infeed_queue_options", {"prefetch_depth": 3}), ("set_outfeed_queue_options", {"buffer_depth": 2}),
], ids=["infeed", "outfeed"])  # fmt: skip
def test_the_depth_of_queues_changes_nothing(keras: Keras, method: str, depth: Any) -> None:
    """Queues may be deeper: the training is the same."""
    keras.check_fit(PLAIN, options=lambda model: getattr(model, method)(**depth))


@pytest.mark.ipus(2)
def test_an_unknown_option_of_a_pipeline_is_refused(keras: Keras) -> None:
    """A keyword that the pipelining operation does not have is an error, at the latest in fit."""
    with check.raises(TypeError, match="depth", what="the option depth"):
        keras.fit(cut("mlp", PLAIN, 2), options=lambda model: model.set_pipelining_options(3, depth=2))


@pytest.mark.parametrize("mapping", ["01", [0, "1"], [0.0, 1.0], 1])
def test_a_device_mapping_is_a_list_of_integers(keras: Keras, mapping: Any) -> None:
    """Anything else is refused when it is set."""
    message = "`device_mapping`.* list of integers"
    with keras.scope(PLAIN), check.raises(ValueError, match=message, what=f"the device_mapping {mapping!r}"):
        compiled(keras).set_pipelining_options(4, device_mapping=mapping)


@pytest.mark.ipus(2)
def test_a_pipeline_has_no_step_of_its_own(keras: Keras, tf: Any) -> None:
    """A pipelined model whose train_step is overridden is refused rather than trained without it."""
    config = cut("mlp", PLAIN, 2)

    class Own(tf.keras.Model):
        def train_step(self, data: Any) -> Any:
            return {}

    with keras.scope(config):
        inputs = tf.keras.Input((6,))
        model = Own(inputs, keras.called(MLP, keras.layers(MLP), inputs, config.stages))
        keras.compile(model, config, steps_per_execution=4)
        model.set_pipelining_options(4)
        with check.raises(RuntimeError, match="`train_step`", what="fit of a pipeline"):
            model.fit(np.ones((8, 6), np.float32), np.zeros(8), batch_size=2, verbose=0)


@pytest.mark.ipus(2)
def test_one_stage_is_no_pipeline(keras: Keras) -> None:
    """A pipeline has at least two stages."""
    config = replace(PLAIN, stages=(0,) * 7, schedule="sequential")
    refused = check.raises(Exception, match="at least two computational stages", what="fit of a pipeline of one stage")
    with keras.ready(config, "sequential", steps_per_execution=1) as model, refused:
        model.fit(keras.dataset(PLAIN), verbose=0)
