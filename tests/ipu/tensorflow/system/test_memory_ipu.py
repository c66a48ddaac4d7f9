"""Memory: a program that its IPUs cannot hold is refused before it runs."""

from __future__ import annotations

import contextlib
from typing import Any, Callable

import numpy as np
import pytest

pytestmark = pytest.mark.emulator

TILES = 6
"""An IPU of so many tiles has 3.7 MiB; its code takes some 150 KiB."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, configure: Callable[..., Any]) -> Callable[[int], None]:
    """Configures IPU models of a few tiles."""

    def put(ipus: int) -> None:
        monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
        configure(ipus, ipu_model__tiles_per_ipu=TILES)

    return put


def built(tf: Any, pipelined: bool = False) -> Any:
    """A model of 2 MiB of weights, in one piece or on four stages; training with Adam needs four times as much."""
    inputs = tf.keras.Input((512,))
    values = inputs
    for layer, width in enumerate((256, 512, 256, 512)):
        with tf.keras.ipu.PipelineStage(layer) if pipelined else contextlib.nullcontext():
            values = tf.keras.layers.Dense(width, name=f"layer{layer}", bias_initializer="ones")(values)
    model = tf.keras.Model(inputs, values)
    model.compile("adam", "mse", steps_per_execution=8 if pipelined else 4)
    if pipelined:
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
    return model


DATA = np.ones((16, 512), np.float32)
RUNS = {
    "fit": lambda model: model.fit(DATA, DATA, batch_size=2, verbose=0),
    "evaluate": lambda model: model.evaluate(DATA, DATA, batch_size=2, verbose=0),
    "predict": lambda model: model.predict(DATA, batch_size=2, verbose=0),
}


@pytest.mark.parametrize("run", ["fit"])
def test_a_program_that_no_ipu_holds_is_refused(tf: Any, ipu: Any, small: Callable[[int], None], run: str) -> None:
    """An IPU that needs more than it has is an error that says what it needs, has, and holds; nothing is trained."""
    small(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = built(tf)
        before = model.get_weights()
        with pytest.raises(tf.errors.ResourceExhaustedError, match=r"IPU 0 needs .* and has 3\.7 MiB.*layer./kernel"):
            RUNS[run](model)

    for old, new in zip(before, model.get_weights()):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("run", ["evaluate", "predict"])
def test_weights_alone_take_less(tf: Any, ipu: Any, small: Callable[[int], None], run: str) -> None:
    """Where nothing is trained there are no gradients and no state, and the same model fits."""
    small(1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        RUNS[run](built(tf))


def test_a_program_fits_on_more_ipus(tf: Any, ipu: Any, small: Callable[[int], None]) -> None:
    """Spread over four stages the same model trains: each IPU holds a quarter of it."""
    small(4)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = built(tf, pipelined=True)
        before = model.get_weights()
        RUNS["fit"](model)

    assert all((old != new).any() for old, new in zip(before, model.get_weights()))
