"""Memory: a program that its IPUs cannot hold is refused before it runs."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import numpy as np
import pytest

from ipu_conformance import check

pytestmark = pytest.mark.emulator

TILES = 6
"""An IPU of six tiles has 3.7 MiB; its code takes some 150 KiB."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, configure: Callable[..., Any]) -> Callable[..., None]:
    """Configures IPU models of a few tiles."""

    def put(ipus: int, tiles: int = TILES) -> None:
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
        configure(ipus, ipu_model__tiles_per_ipu=tiles)

    return put


def built(tf: Any, schedule: Any = None, optimizer: str = "adam") -> Any:
    """A model of 2 MiB of weights, in one piece or on four stages; training with Adam needs four times as much."""
    inputs = tf.keras.Input((512,))
    values = inputs
    for layer, width in enumerate((256, 512, 256, 512)):
        with tf.keras.ipu.PipelineStage(layer) if schedule else contextlib.nullcontext():
            values = tf.keras.layers.Dense(width, name=f"layer{layer}", bias_initializer="ones")(values)
    model = tf.keras.Model(inputs, values)
    model.compile(optimizer, "mse", steps_per_execution=4)
    if schedule:
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, pipeline_schedule=schedule)
    return model


DATA = np.ones((8, 512), np.float32)


def test_a_program_that_no_ipu_holds_is_refused(tf: Any, ipu: Any, small: Callable[[int], None]) -> None:
    """An IPU that needs more than it has is an error that says what it needs, has, and holds; nothing is trained."""
    small(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = built(tf)
        before, error = model.get_weights(), tf.errors.ResourceExhaustedError
        sentence = r"IPU 0 needs .* and has 3\.7 MiB.*layer./kernel"
        with check.raises(error, match=sentence, what="training with Adam on one IPU of 3.7 MiB"):
            model.fit(DATA, DATA, batch_size=2, verbose=0)

    for weight, old, new in zip(model.weights, before, model.get_weights()):
        check.identical(actual=new, expected=old, what=f"{weight.name} after fit was refused")


def test_weights_alone_take_less(tf: Any, ipu: Any, small: Callable[[int], None]) -> None:
    """Inference needs neither gradients nor optimizer state, and the same model fits."""
    small(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = built(tf)
        predictions = model.predict(DATA, batch_size=2, verbose=0)
        loss = model.evaluate(DATA, DATA, batch_size=2, verbose=0)

    check.shape(actual=predictions, expected=DATA.shape, what="the predictions")
    check.holds(np.isfinite(loss), f"the loss of an evaluation is {loss}.")


def test_a_program_fits_on_more_ipus(tf: Any, ipu: Any, small: Callable[[int], None]) -> None:
    """Spread over four stages the same model trains: each IPU holds a quarter of it."""
    small(4)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = built(tf, ipu.pipelining_ops.PipelineSchedule.Sequential)
        before = model.get_weights()
        model.fit(DATA, DATA, batch_size=2, verbose=0)

    for weight, old, new in zip(model.weights, before, model.get_weights()):
        check.differs(actual=new, other=old, what=f"{weight.name} after training")


def test_the_state_of_an_optimizer_takes_memory(tf: Any, ipu: Any, small: Callable[..., None]) -> None:
    """Ten tiles hold the weights and their gradients, 4 MiB, but not two moments of every weight beside them."""
    small(1, tiles=10)
    with ipu.ipu_strategy.IPUStrategy().scope():
        with check.accepted("training with gradient descent on one IPU of 6.1 MiB"):
            built(tf, optimizer="sgd").fit(DATA, DATA, batch_size=2, verbose=0)
        with check.raises(tf.errors.ResourceExhaustedError, match="IPU 0 needs", what="training with Adam on it"):
            built(tf).fit(DATA, DATA, batch_size=2, verbose=0)
