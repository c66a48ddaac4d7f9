"""The models tell a device that gets one of their layers wrong from one that rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Mapping

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.nets import MODELS, Layer, Net, distinct_micro_batches
from ipu_conformance.oracle.op import Op
from ipu_conformance.oracle.ops import OPS
from ipu_conformance.oracle.tolerance import runs as run_tolerance
from ipu_conformance.oracle.tolerance.rounding import RandomRounding
from ipu_conformance.oracle.training import layers
from ipu_conformance.oracle.training.train import train
from ipu_conformance.run import RunConfig, learning_rate

CONFIG = RunConfig(gradient_accumulation=3, steps=3, learning_rate=learning_rate(base=0.0625))


def compare(name: str, **options: Any) -> None:
    """Compare a run in float32, as a device would do it, with the specification of a model."""
    net = MODELS[name]()
    data = distinct_micro_batches(net, CONFIG)
    expected, tolerance = train(net, data, CONFIG), run_tolerance.for_run(net, data, CONFIG)
    run = train(options.pop("net", net), data, CONFIG, rounding=RandomRounding(net, CONFIG, seed=99), **options)
    check.runs_equivalent(actual=run, expected=expected, tolerance=tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_a_device_that_rounds_is_right(name: str) -> None:
    """Rounding to float32 stays within the tolerance of every model."""
    compare(name)


def changed(name: str, op: str, **settings: Any) -> Net:
    """A model with other settings of the layers that are one op."""

    def row(layer: Layer) -> Layer:
        return replace(layer, settings=tuple({**layer.attributes, **settings}.items())) if layer.op == op else layer

    net = MODELS[name]()
    return replace(net, layers=tuple(map(row, net.layers)))


def skips_first(name: str) -> Net:
    """A model that joins its skips before what they join, not behind it."""
    net = MODELS[name]()
    turned = (replace(layer, inputs=layer.inputs[::-1]) if layer.op == "concat" else layer for layer in net.layers)
    return replace(net, layers=tuple(turned))


NETS = {
    "attention of three heads": ("transformer", changed("transformer", "multi_head_attention", heads=3)),
    "layer norm with another epsilon": ("transformer", changed("transformer", "layer_norm", epsilon=2e-3)),
    "batch norm with another epsilon": ("resnet", changed("resnet", "batch_norm", epsilon=2e-3)),
    "skips in another order": ("unet", skips_first("unet")),
}


@pytest.mark.parametrize(("name", "net"), NETS.values(), ids=list(NETS))
def test_another_setting_is_told(name: str, net: Net) -> None:
    """A layer with another setting leaves the tolerance."""
    with pytest.raises(check.CheckFailure, match="allowed"):
        compare(name, net=net)


def test_another_order_of_gates_is_told() -> None:
    """An LSTM whose forget gate takes the weights of the input gate leaves the tolerance."""
    weights = MODELS["lstm"]().initial_weights(CONFIG.seed)
    for name in [name for name in weights if name.startswith("lstm1")]:
        inward, forget, cell, outward = np.split(weights[name], 4)
        weights[name] = np.concatenate([forget, inward, cell, outward])

    with pytest.raises(check.CheckFailure, match=r"^the loss of step 0"):
        compare("lstm", weights=weights)


def once(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of an embedding in which the last place of a token counts alone."""

    def wrong(cotangent: Any, ids: Any, weight: Any, **settings: Any) -> Any:
        flat = ids.ravel()
        last = np.array([token not in flat[place + 1 :] for place, token in enumerate(flat)])
        return vjp(cotangent * last.reshape(*ids.shape, 1), ids, weight, **settings)

    return wrong


def unscaled(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Scores that are divided by the width of a head instead of its root."""
    return lambda x, *, scale: forward(x, scale=scale**2)


OPERATIONS: Mapping[str, Any] = {
    "repeated tokens counted once": (("embedding", "tied_embedding"), "embedding", "vjp", once),
    "scores scaled otherwise": (("transformer",), "scale", "forward", unscaled),
}


@pytest.mark.parametrize("wrong", OPERATIONS)
def test_a_wrong_op_is_told(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """A model that uses a wrong op leaves the tolerance."""
    names, op, part, change = OPERATIONS[wrong]
    right: Op = OPS[op]
    broken = replace(right, **{part: change(getattr(right, part))})
    for name in names:
        net = MODELS[name]()
        data = distinct_micro_batches(net, CONFIG)
        expected, tolerance = train(net, data, CONFIG), run_tolerance.for_run(net, data, CONFIG)
        with monkeypatch.context() as patched:
            patched.setattr(layers, "OPS", {**OPS, op: broken})
            run = train(net, data, CONFIG)

        with pytest.raises(check.CheckFailure, match="allowed"):
            check.runs_equivalent(actual=run, expected=expected, tolerance=tolerance)
