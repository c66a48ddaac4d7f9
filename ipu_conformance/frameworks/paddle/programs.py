"""The suite's nets as Paddle's static programs, with weights of their own in a scope of their own."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import paddle
from paddle.nn import functional

from ipu_conformance.frameworks import orient, weights_of
from ipu_conformance.frameworks.paddle import rules
from ipu_conformance.nets import INPUT, Data, Layer, Net
from ipu_conformance.run import Array, RunConfig, Weights

Kernel = Callable[..., Any]

KERNELS: Mapping[str, Kernel] = {
    "linear": lambda x, w, b: functional.linear(x, w, b),
    "tanh": lambda x: paddle.tanh(x),
    "relu": lambda x: functional.relu(x),
    "add": lambda x, y: paddle.add(x, y),
    "conv": lambda x, w, b=None, *, padding, stride=1: functional.conv2d(x, w, b, stride, padding),
    "conv_transpose": lambda x, w, b, *, stride: functional.conv2d_transpose(x, w, b, stride),
    "interpolate_nearest": lambda x, *, size, coordinates: functional.interpolate(x, list(size), mode="nearest"),
    "max_pool": lambda x, *, kernel, stride: functional.max_pool2d(x, kernel, stride),
    "avg_pool": lambda x, *, kernel, stride: functional.avg_pool2d(x, kernel, stride),
    "flatten": lambda x, *, start, stop: paddle.flatten(x, start, stop),
    "concat": lambda *xs, axis: paddle.concat(list(xs), axis),
    "mean": lambda x, *, axis: paddle.mean(x, axis),
    "matmul": lambda x, w, *, transpose_b: paddle.matmul(x, w, transpose_y=transpose_b),
    "embedding": lambda x, w: functional.embedding(x, w),
    "layer_norm": lambda x, w, b, *, epsilon: functional.layer_norm(x, w.shape, w, b, epsilon),
    "gelu_tanh": lambda x: functional.gelu(x, approximate=True),
    "multi_head_attention": lambda x, *weights, steps, features, heads: _attention(x, weights, heads),
}
"""Each op of the nets on Paddle; batch norm, dropout and the LSTM also need the net or the configuration."""


def _attention(x: Any, weights: Sequence[Any], heads: int) -> Any:
    """Self-attention as ``paddle.nn.MultiHeadAttention`` writes it, with weights of given names."""
    samples, steps, features = x.shape
    width = features // heads
    query, key, value = (
        paddle.transpose(paddle.reshape(functional.linear(x, weight), [samples, steps, heads, width]), [0, 2, 1, 3])
        for weight in weights[:3]
    )
    shares = functional.softmax(paddle.matmul(query * width**-0.5, key, transpose_y=True))
    mixed = paddle.transpose(paddle.matmul(shares, value), [0, 2, 1, 3])
    return functional.linear(paddle.reshape(mixed, [samples, steps, features]), weights[3])


STACK = 4
"""Lines of the stack that an op of a program knows."""
FEEDS = ("x", "label")
AXES = {"linear": (1, 0), "multi_head_attention": (1, 0)}
"""Paddle keeps the weights of linear layers as [in, out]."""


@contextmanager
def static_mode() -> Iterator[None]:
    """Static mode inside the block, and afterwards the mode that was on before; ops know short stacks."""
    dynamic = paddle.in_dynamic_mode()
    paddle.enable_static()
    try:
        with short_stacks():
            yield
    finally:
        if dynamic:
            paddle.disable_static()


@contextmanager
def short_stacks() -> Iterator[None]:
    """Ops that are written inside know the line that called Paddle, not the stack of the whole program.

    Paddle writes the stack into every op as text and copies it with the op; in a test that is a hundred lines.
    """
    before = getattr(sys, "tracebacklimit", None)
    sys.tracebacklimit = STACK
    try:
        yield
    finally:
        if before is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = before


@contextmanager
def emptied(scope: Any, startup: Any) -> Iterator[None]:
    """What a startup program makes in a scope is gone after the block.

    Paddle keeps every scope for as long as the process lives, and each of its tensors takes a page or more.
    """
    try:
        yield
    finally:
        for name in startup.global_block().vars:
            variable = scope.find_var(name)
            if variable is not None:
                variable.get_tensor()._clear()


@dataclass(frozen=True)
class Program:
    """A net as programs, in a scope and under names of its own."""

    net: Net
    config: RunConfig
    main: Any
    startup: Any
    scope: Any
    logits: Any
    loss: Any
    rate: Any
    """Paddle's scheduler, or a number."""
    frozen: Sequence[str] = ()
    """The weights that are not trained."""

    @property
    def fetches(self) -> List[Any]:
        return [self.logits, self.loss] if self.config.training else [self.logits]

    def feed(self, data: Data, step: int) -> Dict[str, Array]:
        """What one run is fed: the combined batch, and in training its labels."""
        return self.batch(data.inputs[step], data.labels[step])

    def batch(self, inputs: Array, labels: Array) -> Dict[str, Array]:
        """Samples and, in training, their labels, as the program takes them."""
        fed = {"x": inputs.astype(np.int64 if self.net.tokens else np.float32)}
        return dict(fed, label=labels.astype(np.int64)[..., np.newaxis]) if self.config.training else fed

    def read(self, name: str) -> Array:
        """A float64 copy of a variable as the host's scope holds it."""
        return np.array(self.scope.find_var(name).get_tensor(), dtype=np.float64)

    def _oriented(self, weight: str, name: str) -> Array:
        return orient(self.net, weight, self.read(name), AXES, back=True)

    def weights(self) -> Weights:
        """The trained weights in the net's own orientation."""
        return {weight.name: self._oriented(weight.name, weight.name) for weight in self.net.weights}

    def statistics(self) -> Optional[Weights]:
        """Batch norm's running statistics, None for a net that has none."""
        return {weight.name: self.read(weight.name) for weight in self.net.statistics} or None

    def state(self) -> Dict[str, Weights]:
        """The optimizer's state by the rule's words, then by weight."""
        trained = [weight.name for weight in self.net.weights if weight.name not in self.frozen]
        return {
            word: {name: self._oriented(name, f"{name}_{theirs}_0") for name in trained}
            for word, theirs in rules.states(self.config.optimizer)
        }


@contextmanager
def build(
    net: Net, config: RunConfig, *, batch: Optional[int] = None, sharded: bool = True, frozen: Sequence[str] = ()
) -> Iterator[Program]:
    """The net as a program with its weights at their initial values, ready in a scope that is current inside.

    ``batch`` is the size of the batch that the program is written for, a micro-batch if it is not given. Without
    ``sharded`` no part of the IPU's API is used. The layers ``frozen`` keep their weights.
    """
    main, startup, scope = paddle.static.Program(), paddle.static.Program(), paddle.static.Scope()
    main.random_seed = startup.random_seed = config.seed
    kept = weights_of(net, frozen)
    with static_mode(), paddle.utils.unique_name.guard(), paddle.static.scope_guard(scope):
        with paddle.static.program_guard(main, startup):
            logits, loss, rate = _written(net, config, batch or config.micro_batch, sharded, kept)
        with emptied(scope, startup):
            paddle.static.Executor(paddle.CPUPlace()).run(startup)
            yield Program(net, config, main, startup, scope, logits, loss, rate, kept)


def _written(net: Net, config: RunConfig, batch: int, sharded: bool, frozen: Sequence[str]) -> Tuple[Any, Any, Any]:
    """Append the net, its loss and its optimizer to the current program."""
    kind = "int64" if net.tokens else "float32"
    values = {INPUT: paddle.static.data("x", (batch, *net.input_shape), kind)}
    label = paddle.static.data("label", (batch, *net.label_shape, 1), "int64") if config.training else None
    held: Dict[str, Any] = {}
    start = net.initial_weights(config.seed)
    stages = config.stages or (0,) * len(net.layers)
    devices = config.devices or tuple(range(config.number_of_stages))
    loss: Any = None
    for stage, ipu in enumerate(devices):
        # Without pipelining there are no stages, only the IPU on which an op runs.
        placed = paddle.static.ipu_shard_guard(ipu, stage if config.schedule == "grouped" else -1)
        with placed if sharded and len(devices) > 1 else nullcontext():
            for layer, layer_stage in zip(net.layers, stages):
                if layer_stage == stage:
                    values[layer.name] = _applied(layer, values, net, config, held, start)
            if stage == len(devices) - 1 and label is not None:
                logits = _classes_last(values[net.layers[-1].name])
                loss = functional.cross_entropy(logits, label, **dict(net.loss_settings))
    for name in frozen:
        weight = paddle.static.default_main_program().global_block().var(name)
        weight.stop_gradient, weight.trainable = True, False
    rate = rules.rate(config)
    if config.training:
        rules.optimizer(config, rate).minimize(loss)
    return values[net.layers[-1].name], loss, rate


def _classes_last(logits: Any) -> Any:
    """Logits with their classes on the last axis, where the loss takes them."""
    rank = len(logits.shape)
    return logits if rank == 2 else paddle.transpose(logits, [0, *range(2, rank), 1])


def _applied(
    layer: Layer, values: Mapping[str, Any], net: Net, config: RunConfig, held: Dict[str, Any], start: Weights
) -> Any:
    inputs = [values[name] for name in layer.inputs]
    if layer.op == "dropout":
        return functional.dropout(*inputs, layer.attributes["rate"], training=config.training)
    if layer.op == "batch_norm":
        return _batch_norm(layer, inputs[0], config, start)
    if layer.op == "lstm":
        return _lstm(layer, inputs[0], start)
    for name in layer.weights:
        if name not in held:
            value = orient(net, name, start[name], AXES).astype(np.float32)
            held[name] = paddle.create_parameter(value.shape, "float32", attr=_attribute(name, value))
    return KERNELS[layer.op](*inputs, *(held[name] for name in layer.weights), **layer.attributes)


def _batch_norm(layer: Layer, x: Any, config: RunConfig, start: Weights) -> Any:
    scale, shift = (_attribute(name, start[name].astype(np.float32)) for name in layer.weights)
    return paddle.static.nn.batch_norm(
        x,
        is_test=not config.training,
        # Paddle's momentum is the share of the old value.
        momentum=1 - layer.attributes["momentum"],
        epsilon=layer.attributes["epsilon"],
        param_attr=scale,
        bias_attr=shift,
        moving_mean_name=f"{layer.name}.running_mean",
        moving_variance_name=f"{layer.name}.running_var",
    )


def _lstm(layer: Layer, x: Any, start: Weights) -> Any:
    """The last output of Paddle's LSTM, whose second bias is not trained: nets have one."""
    kernel, recurrent, bias = (_attribute(name, start[name].astype(np.float32)) for name in layer.weights)
    zeros = paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(0.0), trainable=False)
    lstm = paddle.nn.LSTM(
        x.shape[-1],
        layer.attributes["units"],
        weight_ih_attr=kernel,
        weight_hh_attr=recurrent,
        bias_ih_attr=bias,
        bias_hh_attr=zeros,
    )
    outputs, _ = lstm(x)
    return outputs[:, -1]


def _attribute(name: str, value: Array) -> Any:
    return paddle.ParamAttr(name=name, initializer=paddle.nn.initializer.Assign(value))
