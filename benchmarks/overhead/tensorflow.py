"""What the emulated ``tensorflow.python.ipu`` costs, against stock Keras; ``python -m benchmarks.overhead`` starts it.

Every side fits a model for one epoch on batches that are in memory. Replicas are compared with as many steps of one
replica, each on a batch as large as that of a replica; a pipeline is compared with the same model on one IPU, which
accumulates as many micro-batches of the same size.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any, Callable, ContextManager, Dict, Optional, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.overhead import turns
from ipu_conformance.emulator import hook

hook.install("tensorflow")

import tensorflow as tf  # noqa: E402
from tensorflow.python import ipu  # noqa: E402

from ipu_conformance.workloads.keras import pictures as cifar10  # noqa: E402
from ipu_conformance.workloads.keras.training import compile_for  # noqa: E402
from ipu_conformance.workloads.keras_mnist import training as mnist  # noqa: E402

DENSE = "dense layers"
"""The network on digits: one at which the loop weighs most."""
PICTURES = "pictures"
"""The network on small pictures: kernels outweigh the loop."""
WIDE = "wide layer"
SMALL = 2
"""A batch so small that kernels cost next to nothing."""
MANY = 40
"""Micro-batches of a run that has too many slots for each to be built on its own."""
DEVICES = (1, 2, 4)
"""The IPUs of the devices."""
SHAPES = {DENSE: (28, 28, 1), PICTURES: (32, 32, 3), WIDE: (28, 28, 1)}
STAGES = {DENSE: (0, 0, 1), PICTURES: (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3)}


def wide_network() -> Any:
    """A network whose weights, gradients and state take most of the memory."""
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Flatten(), layers.Dense(8192, activation="relu"), layers.Dense(10, "softmax")])


BUILD: Dict[str, Callable[[], Any]] = {
    DENSE: functools.partial(mnist.build, 0),
    PICTURES: functools.partial(cifar10.build, 0),
    WIDE: wide_network,
}


def samples(network: str, batch: int, batches: int) -> Any:
    """Images and labels without meaning, what they show costs no time; all batches are ready before they are needed."""
    random = np.random.default_rng(0)
    images = random.standard_normal((batch * batches, *SHAPES[network]), np.float32)
    labels = random.integers(0, 10, batch * batches).astype(np.int32)
    made = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch, drop_remainder=True)
    return made.cache()


def begin(threads: int) -> None:
    """Set the threads of an operation and make a device of each size that the sides need."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = list(DEVICES)
    config.configure_ipu_system()


def scope(ipus: int) -> ContextManager[Any]:
    """The scope of a strategy on the device with so many IPUs; with 0 none."""
    if not ipus:
        return contextlib.nullcontext()
    strategy = ipu.ipu_strategy.IPUStrategy(f"/device:IPU:{DEVICES.index(ipus)}")
    own: ContextManager[Any] = strategy.scope()
    return own


def fit(
    network: str,
    batch: int,
    steps: int,
    *,
    ipus: int,
    replicas: int = 1,
    accumulation: int = 1,
    stages: Optional[Sequence[int]] = None,
    optimizer: Any = None,
) -> Callable[[], Any]:
    """One epoch of ``steps`` steps of every replica in one execution; ``ipus`` 0 is stock Keras."""
    with scope(ipus):
        model = BUILD[network]()
        compile_for(model, optimizer or tf.keras.optimizers.SGD(0.01), steps)
        if stages is not None:
            model.set_pipeline_stage_assignment(list(stages))
            model.set_pipelining_options(accumulation)
        elif accumulation > 1:
            model.set_gradient_accumulation_options(accumulation)
    data = samples(network, batch, steps * replicas)

    return lambda: model.fit(data, verbose=0)


def single(network: str, batch: int, steps: int, repeats: int) -> None:
    """Print the overhead on one IPU."""
    emulated, plain = fit(network, batch, steps, ipus=1), fit(network, batch, steps, ipus=0)
    turns.row(f"one IPU, {network}, batch {batch}", emulated, plain, steps, repeats, "at most 1.05")


def replicated(network: str, batch: int, replicas: int, steps: int, repeats: int) -> None:
    """Print the time of a step of all replicas over that of as many steps of one."""
    together = fit(network, batch, steps, ipus=replicas, replicas=replicas)
    alone = fit(network, batch, steps * replicas, ipus=1)
    turns.row(f"{replicas} replicas, {network}, batch {batch}", together, alone, steps, repeats, "at most 1.3")


def pipelined(network: str, batch: int, accumulation: int, steps: int, repeats: int) -> None:
    """Print the time of a micro-batch in a pipeline over that on one IPU, both with accumulation."""
    stages = STAGES[network]
    number = max(stages) + 1
    cut = fit(network, batch, steps, ipus=number, accumulation=accumulation, stages=stages)
    whole = fit(network, batch, steps, ipus=1, accumulation=accumulation)
    turns.row(f"{number} stages, {network}, {accumulation} x batch {batch}", cut, whole, steps, repeats, "at most 1.5")


def compiling(network: str, batch: int) -> None:
    """Print how long a first fit takes that is one step long, on one IPU, on two replicas and in a pipeline."""
    stages = STAGES[network]
    count = 2 * (max(stages) + 1)
    ways = {
        "plain": fit(network, batch, 1, ipus=0),
        "one IPU": fit(network, batch, 1, ipus=1),
        "2 replicas": fit(network, batch, 1, ipus=2, replicas=2),
        f"{max(stages) + 1} stages": fit(
            network, batch, count, ipus=max(stages) + 1, accumulation=count, stages=stages
        ),
    }
    times = ", ".join(f"{name} {turns.seconds(run):.1f}" for name, run in ways.items())
    print(f"\nfirst fit of {network}, s: {times}")


def memory_of(side: str, batch: int, wide: bool) -> int:
    """The bytes that a model and its training add; called in a process of its own.

    The variables of the first replica are the model's own: the host has no copy besides.
    """
    count = {"plain": 0, "one IPU": 1, "two replicas": 2}[side]
    network = WIDE if wide else PICTURES
    fit(DENSE, 2, 2, ipus=count, replicas=max(count, 1))()
    before = turns.status("VmRSS")
    turns.forget_peak()
    run = fit(network, batch, 8, ipus=count, replicas=max(count, 1))
    run()
    return turns.status("VmHWM") - before


def main(repeats: int, threads: int) -> None:
    """Print every ratio with the limit that it is held to."""
    turns.title("ms per step of fit", "emulated", "plain")
    single(DENSE, SMALL, 400, repeats)
    single(DENSE, 32, 400, repeats)
    single(PICTURES, 16, 10, repeats)
    turns.title("ms per step of all replicas", "together", "R steps")
    for replicas in (2, 4):
        replicated(DENSE, SMALL, replicas, 200, repeats)
        replicated(DENSE, 32, replicas, 200, repeats)
    replicated(PICTURES, 16, 2, 5, repeats)
    turns.title("ms per micro-batch", "pipeline", "one IPU")
    for accumulation in (8, MANY):
        pipelined(DENSE, SMALL, accumulation, 400, repeats)
        pipelined(DENSE, 32, accumulation, 400, repeats)
    pipelined(PICTURES, 16, 8, 16, repeats)
    if hasattr(tf, "estimator"):
        from benchmarks.overhead import estimators

        estimators.rows(repeats)
    compiling(DENSE, 32)
    rows = (("pictures, batch 16", 16, False), ("wide layer, batch 8", 8, True))
    turns.memory("benchmarks.overhead.tensorflow", threads, rows)


if __name__ == "__main__":
    turns.start(main, memory_of, begin)
