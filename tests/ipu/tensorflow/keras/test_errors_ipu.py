"""What Keras models on the IPU refuse, and the options of their queues."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np
import pytest

from ...training import cut
from .nets import MLP, PLAIN, Keras, assert_trained

PHASES = ("fit", "evaluate", "predict")
X, Y = np.ones((6, 6), np.float32), np.zeros(6, np.int32)


def compiled(keras: Keras, **settings: Any) -> Any:
    """A model that is ready to run."""
    model = keras.build()
    keras.compile(model, PLAIN, **{"steps_per_execution": 1, **settings})
    return model


def run(model: Any, phase: str, data: Any, **settings: Any) -> Any:
    """Fit, evaluate or predict."""
    return getattr(model, phase)(data, verbose=0, **settings)


@pytest.mark.parametrize("phase", PHASES)
def test_generators_are_refused(keras: Keras, phase: str) -> None:
    """A Python generator cannot feed a model."""

    def batches() -> Iterator[Any]:
        while True:
            yield X[:2], Y[:2]

    with keras.scope(PLAIN), pytest.raises(ValueError, match="Python generators"):
        run(compiled(keras), phase, batches(), **{"steps_per_epoch" if phase == "fit" else "steps": 2})


@pytest.mark.parametrize("phase", PHASES)
def test_sequences_are_refused(keras: Keras, tf: Any, phase: str) -> None:
    """A Keras sequence cannot feed a model either."""

    class Batches(tf.keras.utils.Sequence):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return X[:2], Y[:2]

    with keras.scope(PLAIN), pytest.raises(ValueError, match="Keras sequences"):
        run(compiled(keras), phase, Batches())


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("samples", "size"), [(5, 2), (6, 4), (3, 5)])
def test_partial_batches_of_arrays_are_refused(keras: Keras, phase: str, samples: int, size: int) -> None:
    """Samples that do not fill the last batch are an error."""
    labels = {} if phase == "predict" else {"y": Y[:samples]}
    with keras.scope(PLAIN):
        model = compiled(keras)

        with pytest.raises(ValueError, match=rf"not a multiple of the batch size \({size}\)"):
            getattr(model, phase)(X[:samples], batch_size=size, verbose=0, **labels)


@pytest.mark.parametrize("phase", PHASES)
def test_a_shape_is_fully_defined(keras: Keras, tf: Any, phase: str) -> None:
    """A data set that was batched without drop_remainder is refused, with the way out."""
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)
    message = r"Output shape \(None, 6\) is not fully defined.*set `drop_remainder=True`"

    with keras.scope(PLAIN), pytest.raises(ValueError, match=message):
        run(compiled(keras), phase, data)


@pytest.mark.parametrize("phase", PHASES)
def test_the_size_of_the_data_is_known(keras: Keras, tf: Any, phase: str) -> None:
    """A data set of unknown size needs a number of steps."""
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2, drop_remainder=True).filter(lambda x, y: True)

    with keras.scope(PLAIN), pytest.raises(ValueError, match="The size of the data is unknown"):
        run(compiled(keras), phase, data)


@pytest.mark.parametrize("phase", PHASES)
def test_a_number_of_steps_makes_an_unknown_size_known(keras: Keras, tf: Any, phase: str) -> None:
    """The same data set is accepted with steps."""
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2, drop_remainder=True).filter(lambda x, y: True)

    with keras.scope(PLAIN):
        assert run(compiled(keras), phase, data, **{"steps_per_epoch" if phase == "fit" else "steps": 3}) is not None


@pytest.mark.parametrize("phase", PHASES)
def test_an_endless_data_set_needs_steps(keras: Keras, tf: Any, phase: str) -> None:
    """A repeated data set without a number of steps is refused."""
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2, drop_remainder=True).repeat()

    with keras.scope(PLAIN), pytest.raises(ValueError, match="steps"):
        run(compiled(keras), phase, data)


@pytest.mark.parametrize("phase", PHASES)
def test_eager_execution_is_refused(keras: Keras, phase: str) -> None:
    """A model that was compiled with run_eagerly=True cannot be run."""
    with keras.scope(PLAIN), pytest.raises(RuntimeError, match="cannot be run eagerly"):
        run(compiled(keras, run_eagerly=True), phase, keras.dataset(PLAIN))


@pytest.mark.parametrize("phase", PHASES)
def test_functions_that_run_eagerly_are_refused(keras: Keras, tf: Any, phase: str) -> None:
    """Nor can any model while tf.functions run eagerly."""
    with keras.scope(PLAIN):
        model = compiled(keras)
        tf.config.run_functions_eagerly(True)
        try:
            with pytest.raises(RuntimeError, match="cannot be run eagerly"):
                run(model, phase, keras.dataset(PLAIN))
        finally:
            tf.config.run_functions_eagerly(False)


def test_a_model_is_compiled_first(keras: Keras) -> None:
    """fit of a model that was never compiled is Keras' own error."""
    with keras.scope(PLAIN), pytest.raises(RuntimeError, match="must compile"):
        keras.build().fit(keras.dataset(PLAIN), verbose=0)


@pytest.mark.parametrize(("method", "key"), [
    ("set_infeed_queue_options", "dataset"), ("set_outfeed_queue_options", "outfeed_mode"),
])  # fmt: skip
def test_reserved_options_of_queues_are_refused(keras: Keras, method: str, key: str) -> None:
    """What Keras sets itself is refused with the name of the key."""
    with keras.scope(PLAIN), pytest.raises(ValueError, match=f"Found `{key}` key in `{method}`"):
        getattr(compiled(keras), method)(**{key: 1})


@pytest.mark.parametrize("options", [
    {"set_infeed_queue_options": {"prefetch_depth": 3}}, {"set_outfeed_queue_options": {"buffer_depth": 2}},
], ids=["infeed", "outfeed"])  # fmt: skip
def test_the_depth_of_queues_changes_nothing(keras: Keras, options: Any) -> None:
    """Queues may be deeper: the training is the same."""
    with keras.scope(PLAIN):
        model = compiled(keras, steps_per_execution=3)
        for method, settings in options.items():
            getattr(model, method)(**settings)
        model.fit(keras.dataset(PLAIN), verbose=0)

    assert_trained(keras.trained(model), PLAIN)


def test_an_unknown_option_of_a_pipeline_is_refused(keras: Keras) -> None:
    """A keyword that the pipelining operation does not have is an error."""
    with keras.scope(PLAIN), pytest.raises(TypeError, match="`depth` is not an option of a pipeline"):
        compiled(keras).set_pipelining_options(4, depth=2)


@pytest.mark.parametrize("mapping", ["01", [0, "1"], [0.0, 1.0], 1])
def test_a_device_mapping_is_a_list_of_integers(keras: Keras, mapping: Any) -> None:
    """Anything else is refused when it is set."""
    with keras.scope(PLAIN), pytest.raises(ValueError, match="`device_mapping` must be a list of integers"):
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

        with pytest.raises(RuntimeError, match="its own `train_step`"):
            model.fit(np.ones((8, 6), np.float32), np.zeros(8), batch_size=2, verbose=0)


@pytest.mark.ipus(2)
def test_one_stage_is_no_pipeline(keras: Keras) -> None:
    """A pipeline has at least two stages."""
    with keras.scope(PLAIN):
        model = keras.build("sequential", [0] * 7)
        keras.compile(model, PLAIN, steps_per_execution=1)
        model.set_pipelining_options(1, pipeline_schedule=keras.schedule("sequential"))

        with pytest.raises(Exception, match="at least two computational stages"):
            model.fit(keras.dataset(PLAIN), verbose=0)


@pytest.mark.emulator
def test_an_export_for_serving_needs_the_vendors_compiler(keras: Keras, tmp_path: Any) -> None:
    """Where there is no compiler the export says so."""
    with keras.scope(PLAIN), pytest.raises(NotImplementedError, match="the vendor's compiler"):
        compiled(keras).export_for_ipu_serving(str(tmp_path), 1)
