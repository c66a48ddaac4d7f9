"""normalization_ops: values and gradients against the oracle's norms, layouts, parameters and what is refused."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

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


def _order(groups: int, strided: bool, channels: int = 12) -> np.ndarray:
    """The channels of each group one after the other, as the oracle has them."""
    numbers = np.arange(channels)
    return numbers.reshape(-1, groups).T.ravel() if strided else numbers


def _norm(
    tf: Any, ipu: Any, name: str, layout: str, dtype: str, order: np.ndarray, **settings: Any
) -> Tuple[OpResult, List[Any], List[np.ndarray], np.ndarray, Callable[[str, np.ndarray], np.ndarray]]:
    """A norm on the device, and the oracle's inputs: channels second and in order, scale and offset likewise."""
    shape, axis = LAYOUTS[layout]
    x, cotangent = distinct(shape, 3, dtype), values(shape, 4, dtype=dtype)
    gamma, beta = values([12], 5, 0.5, 2.0, dtype), values([12], 6, dtype=dtype)
    starts = {"gamma": tf.constant_initializer(gamma), "beta": tf.constant_initializer(beta)}
    norm = getattr(ipu.normalization_ops, name)
    result, variables = run_graph(
        tf, ipu, lambda x: norm(x, channels_axis=axis, epsilon=EPSILON, param_initializers=starts, **settings),
        [x], cotangent, dtype,
    )  # fmt: skip
    # The variables come by their names: beta before gamma, the oracle's scale before its offset.
    result = OpResult(result.outputs, (result.gradients[0], *result.gradients[:0:-1]))

    def turned(what: str, value: np.ndarray) -> np.ndarray:
        return value[order] if value.ndim == 1 else np.moveaxis(value, axis, 1)[:, order]

    inputs = [turned("", x), gamma[order], beta[order]]
    return result, variables, inputs, turned("", cotangent), turned


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("strided", [True, False], ids=["strided", "neighbouring"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_group_norm_is_as_specified(tf: Any, ipu: Any, layout: str, strided: bool, dtype: str) -> None:
    """A group is every third channel, or neighbouring ones; gradients flow to input, scale and offset."""
    order = _order(3, strided)
    result, _, inputs, cotangent, turned = _norm(
        tf, ipu, "group_norm", layout, dtype, order, groups=3, strided_channel_grouping=strided
    )

    as_specified(result, "group_norm", inputs, cotangent, dtype, turned, groups=3, epsilon=EPSILON)


def test_groups_are_two_and_strided_by_default(tf: Any, ipu: Any) -> None:
    """By default a group holds every second channel."""
    result, _, inputs, cotangent, turned = _norm(tf, ipu, "group_norm", "NHWC", "float32", _order(2, strided=True))

    as_specified(result, "group_norm", inputs, cotangent, "float32", turned, groups=2, epsilon=EPSILON)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_instance_norm_is_as_specified(tf: Any, ipu: Any, layout: str, dtype: str) -> None:
    """Every channel of a sample is normalised on its own."""
    result, _, inputs, cotangent, turned = _norm(tf, ipu, "instance_norm", layout, dtype, np.arange(12))

    as_specified(result, "instance_norm", inputs, cotangent, dtype, turned, epsilon=EPSILON)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["rows", "NHWC", "NCHW"])
def test_layer_norm_is_as_specified(tf: Any, ipu: Any, layout: str, dtype: str) -> None:
    """All elements of a sample are normalised together."""
    result, _, inputs, cotangent, turned = _norm(tf, ipu, "layer_norm", layout, dtype, np.arange(12))

    as_specified(result, "group_norm", inputs, cotangent, dtype, turned, groups=1, epsilon=EPSILON)


@pytest.mark.parametrize("name", ["group_norm", "instance_norm", "layer_norm"])
@pytest.mark.parametrize(("center", "scale"), [(True, False), (False, True), (False, False)])
def test_parameters_are_made_when_asked_for(tf: Any, ipu: Any, name: str, center: bool, scale: bool) -> None:
    """Without ``center`` there is no beta, without ``scale`` no gamma."""
    result, variables = run_graph(
        tf, ipu, lambda x: getattr(ipu.normalization_ops, name)(x, center=center, scale=scale, scope="own"),
        [distinct((2, 4, 4))], values((2, 4, 4)), "float32",
    )  # fmt: skip

    names = ["own/beta:0"] * center + ["own/gamma:0"] * scale
    found = (sorted(variable.name for variable in variables), len(result.gradients))
    check.equal(actual=found, expected=(names, 1 + len(names)), what="the parameters, and the number of gradients")


def test_parameters_need_not_be_trained(tf: Any, ipu: Any) -> None:
    """With ``trainable`` off they are variables that no optimizer sees."""
    result, variables = run_graph(
        tf, ipu, lambda x: ipu.normalization_ops.group_norm(x, trainable=False),
        [distinct((2, 4, 4))], values((2, 4, 4)), "float32",
    )  # fmt: skip

    found = ([variable.name for variable in variables], len(result.gradients))
    expected = (["GroupNorm/beta:0", "GroupNorm/gamma:0"], 1)
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


@pytest.mark.parametrize("groups", [5, 24, 0])
def test_groups_divide_the_channels(tf: Any, ipu: Any, groups: int) -> None:
    """12 channels are neither 5 groups nor 24 nor none."""
    with check.raises(ValueError, match=f"{groups} groups", what=f"group_norm of 12 channels in {groups} groups"):
        ipu.normalization_ops.group_norm(tf.zeros((2, 3, 12)), groups=groups)


@pytest.mark.parametrize("axis", [3, -4, 0])
def test_the_channels_are_an_axis_of_the_inputs(tf: Any, ipu: Any, axis: int) -> None:
    """An axis that does not exist is refused, and so is that of the batch."""
    with check.raises(ValueError, match="channels_axis", what=f"layer_norm of [2, 3, 12] along axis {axis}"):
        ipu.normalization_ops.layer_norm(tf.zeros((2, 3, 12)), channels_axis=axis)
