"""What the emulated IPUEstimator costs, against stock's estimator; the benchmark of TensorFlow calls it.

Both sides train the same network on the same batches, and both run as many steps in one run of the session: the stock
side has the loop in its own graph. A third side is stock without a loop, a run of the session for every step. Each side
trains in a thread of its own, which waits before every run of the session until it is its turn: what is measured are
the runs, with all that an estimator does between them, without the graph and the session that come first.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from typing import Any, Callable, Dict, Iterator, List

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from benchmarks.overhead import turns
from ipu_conformance.workloads.keras import pictures as cifar10
from ipu_conformance.workloads.keras.estimators import quietly

v1 = tf.compat.v1
RATE = 0.01
LONGEST = 600
"""Seconds after which a side that does not go on is given up."""
BATCHES = 8
"""The batches that are gone through again and again."""
DENSE, PICTURES = "dense layers", "pictures"
SHAPES = {DENSE: (28, 28, 1), PICTURES: (32, 32, 3)}
RARELY: Dict[str, Any] = {
    "save_summary_steps": None,
    "save_checkpoints_steps": None,
    "save_checkpoints_secs": None,
    "log_step_count_steps": None,
}
"""Nothing is written while it trains."""


def chain(network: str) -> List[Any]:
    """The layers of a network."""
    if network == PICTURES:
        return cifar10.layers(0)
    keras = tf.keras.layers
    return [keras.Flatten(), keras.Dense(128, activation="relu"), keras.Dense(10, activation="softmax")]


def samples(network: str, batch: int) -> Any:
    """Images and labels without meaning, and without an end."""
    random = np.random.default_rng(0)
    images = random.standard_normal((batch * BATCHES, *SHAPES[network]), np.float32)
    labels = random.integers(0, 10, batch * BATCHES).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch, drop_remainder=True).cache().repeat()


def step(network: str, images: Any, labels: Any, count: Any = None) -> Any:
    """The loss of a batch, and the operation that updates the weights."""
    loss = cifar10.loss_of(labels, cifar10.through(chain(network), images, training=True))
    return loss, v1.train.GradientDescentOptimizer(RATE).minimize(loss, count)


def emulated(network: str, batch: int, steps: int, folder: str) -> Any:
    """An IPUEstimator."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss, update = step(network, features, labels)
        return ipu.ipu_estimator.IPUEstimatorSpec(mode, loss=loss, train_op=update)

    options = ipu.ipu_run_config.IPURunConfig(iterations_per_loop=steps)
    config = ipu.ipu_run_config.RunConfig(ipu_run_config=options, **RARELY)
    return ipu.ipu_estimator.IPUEstimator(model_fn, folder, config)


def looping(network: str, batch: int, steps: int, folder: str) -> Any:
    """Stock's estimator with a loop over batches in its graph."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        source = v1.data.make_initializable_iterator(samples(network, batch))
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, source.initializer)

        def body(number: Any, total: Any) -> Any:
            loss, update = step(network, *source.get_next())
            with tf.control_dependencies([update]):
                return number + 1, total + loss

        start = (tf.constant(0), tf.constant(0.0))
        _, total = tf.while_loop(lambda number, _: number < steps, body, start, parallel_iterations=1)
        with tf.control_dependencies([total]):
            count = v1.assign_add(v1.train.get_global_step(), steps)
        return tf.estimator.EstimatorSpec(mode, loss=total / steps, train_op=count)

    return tf.estimator.Estimator(model_fn, folder, tf.estimator.RunConfig(**RARELY))


def stepping(network: str, batch: int, steps: int, folder: str) -> Any:
    """Stock's estimator as it is."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss, update = step(network, features, labels, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=update)

    return tf.estimator.Estimator(model_fn, folder, tf.estimator.RunConfig(**RARELY))


class Turns(tf.compat.v1.train.SessionRunHook):
    """Lets a session run only when it is told to."""

    def __init__(self) -> None:
        self._go, self._ready = threading.Semaphore(0), threading.Semaphore(0)
        self._last = False

    def before_run(self, run_context: Any) -> None:
        self._ready.release()
        self._go.acquire()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self._last:
            run_context.request_stop()

    def wait(self) -> None:
        """Come back when the session could run."""
        if not self._ready.acquire(timeout=LONGEST):
            raise RuntimeError(f"a side of the benchmark was not ready after {LONGEST} s")

    def take(self, runs: int) -> None:
        """Let the session run so often, and come back when it could run again."""
        for _ in range(runs):
            self._go.release()
            self.wait()

    def finish(self) -> None:
        """Let the session run once more, and then end."""
        self._last = True
        self._go.release()


@contextlib.contextmanager
def side(make: Callable[..., Any], network: str, batch: int, steps: int) -> Iterator[Callable[[], None]]:
    """What trains ``steps`` steps with every call, when it is ready to begin."""
    hook, runs = Turns(), steps if make is stepping else 1
    with tempfile.TemporaryDirectory() as folder:
        estimator = make(network, batch, steps, folder)
        thread = threading.Thread(
            target=lambda: estimator.train(lambda: samples(network, batch), hooks=[hook]), daemon=True
        )
        thread.start()
        hook.wait()
        try:
            yield lambda: hook.take(runs)
        finally:
            hook.finish()
            thread.join()


def rows(repeats: int) -> None:
    """Print the ratios of one IPU."""
    with quietly():
        for name, plain, limit in (("a loop", looping, "at most 1.10"), ("single runs", stepping, "for comparison")):
            turns.title(f"ms per step of an estimator, over {name}", "emulated", "stock")
            for network, batch, steps in ((DENSE, 2, 400), (DENSE, 32, 400), (PICTURES, 16, 20)):
                with side(emulated, network, batch, steps) as one, side(plain, network, batch, steps) as other:
                    turns.row(f"one IPU, {network}, batch {batch}", one, other, steps, repeats, limit)
