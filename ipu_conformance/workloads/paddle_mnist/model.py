"""The network as static Programs: plain Paddle, the same for an IPU and for the native twin."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Iterator, Tuple

import paddle
from paddle import static
from paddle.nn import functional

IMAGE, LABEL = "image", "label"
CLASSES = 10

Shard = Callable[[int], ContextManager[Any]]
"""``shard(part)`` is entered while the ops of one part of the network are made."""


@dataclass(frozen=True)
class Network:
    """A Program, the Program that makes its weights, and its variables."""

    main: Any
    startup: Any
    image: Any
    prediction: Any
    """The probability of every digit, [batch, 10]."""
    costs: Any
    """The cross entropy of every sample, [batch, 1]."""
    cost: Any
    """Its mean."""


@contextlib.contextmanager
def static_mode() -> Iterator[None]:
    """Programs are made and run in here; a caller's dynamic mode comes back afterwards."""
    dynamic = paddle.in_dynamic_mode()
    paddle.enable_static()
    try:
        yield
    finally:
        if dynamic:
            paddle.disable_static()


def build(
    batch: int,
    *,
    learning_rate: float = 0.0,
    seed: int = 0,
    shard: Shard = lambda part: contextlib.nullcontext(),
) -> Network:
    """LeNet-5 for a fixed batch; with a learning rate it is trained by Adam, without it is for evaluation.

    Weights have the same names whatever the batch, so that networks in one scope share them.
    """
    with new_programs(seed) as (main, startup):
        image, label = inputs(batch)
        prediction, costs = classify(image, label, training=learning_rate > 0, shard=shard)
        with shard(1):
            cost = paddle.mean(costs)
        if learning_rate > 0:
            paddle.optimizer.Adam(learning_rate=learning_rate).minimize(cost)
    return Network(main, startup, image, prediction, costs, cost)


@contextlib.contextmanager
def new_programs(seed: int) -> Iterator[Tuple[Any, Any]]:
    """A new main and startup Program to build in, with fresh unique names."""
    main, startup = static.Program(), static.Program()
    # Paddle takes 0 for "any seed".
    main.random_seed = startup.random_seed = seed + 1
    with paddle.utils.unique_name.guard(), static.program_guard(main, startup):
        yield main, startup


def inputs(batch: int, dtype: str = "float32") -> Tuple[Any, Any]:
    """The images and the labels that a Program is fed."""
    return static.data(IMAGE, [batch, 1, 28, 28], dtype), static.data(LABEL, [batch, 1], "int64")


def classify(
    image: Any, label: Any, *, training: bool, shard: Shard = lambda part: contextlib.nullcontext(), norm: str = "norm"
) -> Tuple[Any, Any]:
    """The probabilities of the digits and the cost of every sample; ``norm`` names the batch norm's statistics."""
    with shard(0):
        features = functional.max_pool2d(_convolution(image, 20, "conv1"), 2, 2)
        features = static.nn.batch_norm(
            features,
            is_test=not training,
            param_attr="norm.weight",
            bias_attr="norm.bias",
            moving_mean_name=f"{norm}.mean",
            moving_variance_name=f"{norm}.variance",
        )
    with shard(1):
        features = functional.max_pool2d(_convolution(features, 50, "conv2"), 2, 2)
        scores = static.nn.fc(features, CLASSES, weight_attr="fc.weight", bias_attr="fc.bias")
        return functional.softmax(scores), functional.softmax_with_cross_entropy(scores, label)


def _convolution(images: Any, channels: int, name: str) -> Any:
    return static.nn.conv2d(
        images, channels, 5, act="relu", param_attr=f"{name}.weight", bias_attr=f"{name}.bias"
    )  # fmt: skip
