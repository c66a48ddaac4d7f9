"""normalization_ops: values and gradients against the oracle's norms, layouts, parameters and what is refused."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check

from .operations import DTYPES, OpResult, as_specified, distinct, run_graph, values

LAYOUTS = {
    "rows": ((5, 12), -1),
    "NWC": ((2, 5, 12), -1),
    "NHWC": ((2, 3, 2, 12), -1),
    "NCHW": ((2, 12, 3, 2), 1),
    "NDHWC": ((2, 2, 3, 2, 12), 4),
}
"""Shapes of 12 channels, and where the channels are."""
EPSILON = 2.0**-10


@pytest.fixture(autouse=True)
def _one_ipu(configure: Callable[..., Any]) -> None:
    configure(1)


NORMS: Dict[str, Tuple[str, str, int, Dict[str, Any]]] = {
    **{f"{layout}-{word}": ("group_norm", layout, 3, {"groups": 3, "strided_channel_grouping": word == "strided"})
       for layout in LAYOUTS for word in ("strided", "neighbouring")},
    "default": ("group_norm", "NHWC", 2, {}),
    **{f"instance-{layout}": ("instance_norm", layout, 12, {}) for layout in ("NHWC", "NCHW")},
    **{f"layer-{layout}": ("layer_norm", layout, 1, {}) for layout in ("rows", "NHWC", "NCHW")},
}  # fmt: skip
"""A norm, the layout, the number of groups that it has, and what it is told."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", NORMS)
def test_norms_are_as_specified(tf: Any, ipu: Any, row: str, dtype: str) -> None:
    """A group is every so manieth channel, or neighbouring ones; gradients flow to input, scale and offset.

    Every channel is an instance's group, and all are a layer's; two groups are the default.
    """
    name, layout, groups, settings = NORMS[row]
    shape, axis = LAYOUTS[layout]
    x, cotangent = distinct(shape, 3, dtype), values(shape, 4, dtype=dtype)
    gamma, beta = values([12], 5, 0.5, 2.0, dtype), values([12], 6, dtype=dtype)
    settings = {
        **settings,
        "param_initializers": {"gamma": tf.constant_initializer(gamma), "beta": tf.constant_initializer(beta)},
    }
    norm = getattr(ipu.normalization_ops, name)
    result, _ = run_graph(
        tf, ipu, lambda x: norm(x, channels_axis=axis, epsilon=EPSILON, **settings), [x], cotangent, dtype
    )
    # The variables come by their names: beta before gamma, the oracle's scale before its offset.
    result = OpResult(result.outputs, (result.gradients[0], *result.gradients[:0:-1]))
    order = np.arange(12)
    if settings.get("strided_channel_grouping", True):  # the oracle has the channels of a group one after the other
        order = order.reshape(-1, groups).T.ravel()

    def turned(what: str, value: np.ndarray) -> np.ndarray:
        return value[order] if value.ndim == 1 else np.moveaxis(value, axis, 1)[:, order]

    inputs = [turned("", x), gamma[order], beta[order]]
    as_specified(result, "group_norm", inputs, turned("", cotangent), dtype, turned, groups=groups, epsilon=EPSILON)


@pytest.mark.parametrize("name", ["group_norm", "instance_norm", "layer_norm"])
@pytest.mark.parametrize(
    ("settings", "parameters", "trained"),
    [
        ({"center": True, "scale": False, "scope": "own"}, ["beta"], 1),
        ({"center": False, "scale": True, "scope": "own"}, ["gamma"], 1),
        ({"center": False, "scale": False, "scope": "own"}, [], 0),
        ({"trainable": False}, ["beta", "gamma"], 0),
    ],
    ids=["True-False", "False-True", "False-False", "kept"],
)
def test_parameters_are_made_when_asked_for(
    tf: Any, ipu: Any, name: str, settings: Dict[str, Any], parameters: List[str], trained: int
) -> None:
    """Without ``center`` there is no beta, without ``scale`` no gamma; those that are kept no optimizer sees."""
    result, variables = run_graph(
        tf, ipu, lambda x: getattr(ipu.normalization_ops, name)(x, **settings),
        [distinct((2, 4, 4))], values((2, 4, 4)), "float32",
    )  # fmt: skip

    found = (sorted(variable.name for variable in variables), len(result.gradients))
    scope = settings.get("scope", name.title().replace("_", ""))
    expected = ([f"{scope}/{parameter}:0" for parameter in parameters], 1 + trained)
    check.equal(actual=found, expected=expected, what="the parameters, and the number of gradients")


def test_training_changes_no_statistics(tf: Any, ipu: Any) -> None:
    """The statistics are the sample's own, in training or not."""
    runs = [
        run_graph(
            tf, ipu, lambda x, on=on: ipu.normalization_ops.group_norm(x, training=on),
            [distinct((2, 4, 4))], values((2, 4, 4)), "float32",
        )[0].outputs[0]
        for on in (True, False)
    ]  # fmt: skip

    check.identical(actual=runs[0], expected=runs[1], what="group_norm out of training", because="nothing is averaged")
