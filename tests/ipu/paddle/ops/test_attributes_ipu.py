"""Attributes of ops that only Paddle's handlers know: sizes that are tensors, lengths of sequences, divided losses."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance

from ..device import compiled, started

UNIT = FORMATS["float32"].unit
IMAGE = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
SIZES: Mapping[str, Tuple[Callable[[Any], Any], Tuple[int, int]]] = {
    "list-of-tensors": (lambda paddle: {"size": [paddle.full([1], 6, "int32"), paddle.full([1], 9, "int32")]}, (3, 3)),
    "tensor-and-number": (lambda paddle: {"size": [paddle.full([1], 4, "int32"), 9]}, (2, 3)),
    "vector": (lambda paddle: {"size": paddle.assign(np.array([10, 6], np.int32))}, (5, 2)),
    "factors": (lambda paddle: {"scale_factor": paddle.assign(np.array([2, 4], np.float32))}, (2, 4)),
    "factor": (lambda paddle: {"scale_factor": paddle.full([1], 3.0)}, (3, 3)),
}
"""How a size is given, and how often each row and column comes then."""


@pytest.mark.parametrize("name", SIZES)
def test_a_size_may_be_a_tensor(paddle: Any, static: Any, name: str) -> None:
    """A picture grows to the size, or by the factors, that constants of the program hold (``nn_ops.cc``)."""
    asked, (rows, columns) = SIZES[name]
    x = static.data("x", list(IMAGE.shape), "float32")
    grown = paddle.nn.functional.interpolate(x, mode="nearest", **asked(paddle))
    with check.accepted(f"a size that is given as {name}"):
        (fetched,) = compiled(paddle, [grown * 2.0], size=1).run(IMAGE)

    expected = 2 * IMAGE.repeat(rows, 2).repeat(columns, 3)
    check.identical(actual=fetched, expected=expected, what="the picture")


ROWS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _one(paddle: Any, number: int) -> Any:
    """A number as a constant of the program."""
    return paddle.full([1], number, "int32")


AXES: Mapping[str, Tuple[Callable[[Any, Any], Any], np.ndarray]] = {
    "concat": (lambda paddle, x: paddle.concat([x, x], axis=_one(paddle, 1)), np.concatenate([ROWS, ROWS], 1)),
    "split": (lambda paddle, x: paddle.split(x, 2, axis=_one(paddle, 2))[1], ROWS[:, :, 2:]),
    "unsqueeze": (lambda paddle, x: paddle.unsqueeze(x, axis=_one(paddle, 2)), ROWS[:, :, np.newaxis]),
    "gather": (
        lambda paddle, x: paddle.gather(x, paddle.assign(np.array([1, 0, 1], np.int32)), axis=_one(paddle, 0)),
        ROWS[[1, 0, 1]],
    ),
    "topk": (lambda paddle, x: paddle.topk(x, _one(paddle, 3))[0], ROWS[:, :, :0:-1]),
}
"""Ops whose axis or number is a tensor, and what they make of the rows."""


@pytest.mark.emulator
@pytest.mark.parametrize("name", AXES)
def test_an_axis_may_be_a_constant(paddle: Any, static: Any, name: str) -> None:
    """What a constant of the program holds counts, in the values and in the ops that are compiled.

    No document says so of an IPU build, whose handlers do not look at these inputs.
    """
    ask, expected = AXES[name]
    x = static.data("x", [2, 3, 4], "float32")
    (fetched,) = compiled(paddle, [ask(paddle, x) * 2.0], size=2).run(ROWS)

    check.identical(actual=fetched, expected=2 * expected, what=f"twice the result of {name}")


@pytest.mark.parametrize("shape", [[2, 3], [3, 2]], ids=str)
def test_repeats_that_are_tensors_are_refused(paddle: Any, static: Any, shape: Any) -> None:
    """``tile`` and ``expand`` take numbers (``tensor_ops.cc``)."""
    for repeat in (paddle.tile, paddle.expand):
        # Each in a program of its own: a compilation looks at every op, whatever is fetched.
        with static.program_guard(static.Program(), static.Program()):
            x = static.data("x", [1, 1], "float32")
            repeated = repeat(x, paddle.assign(np.array(shape, np.int32)))
            with check.raises((RuntimeError, NotImplementedError), what=f"{repeat.__name__} by a tensor, {shape},"):
                compiled(paddle, [repeated * 2.0], size=1)


@pytest.mark.parametrize(
    ("kind", "dtype", "attributes"),
    [
        ("mish", "float32", {"threshold": 10.0}),
        ("one_hot_v2", "int32", {"depth": 6, "dtype": 5, "allow_out_of_range": True}),
    ],
    ids=["mish", "one_hot_v2"],
)
def test_an_attribute_that_no_handler_takes_is_refused(
    paddle: Any, static: Any, kind: str, dtype: str, attributes: Any
) -> None:
    """``mish`` bends at 20, and classes are in range (``activation_ops.cc``, ``tensor_ops.cc``)."""
    x = static.data("x", [2, 3], dtype)
    block = paddle.static.default_main_program().current_block()
    out = block.create_var(dtype="float32")
    block.append_op(type=kind, inputs={"X": x}, outputs={"Out": out}, attrs=dict(attributes))

    with check.raises(NotImplementedError, what=f"{kind} with {attributes}"):
        compiled(paddle, [out], size=2)


Build = Callable[[Any, Any], Any]


def _channels(paddle: Any, x: Any) -> Any:
    block = paddle.static.default_main_program().current_block()
    ones, out = paddle.ones([5]), block.create_var(dtype="float32")
    inputs = {"X": x, "Scale": ones, "Bias": ones}
    block.append_op(type="affine_channel", inputs=inputs, outputs={"Out": out}, attrs={"data_layout": "NHWC"})
    return out


def _divergence(paddle: Any, x: Any) -> Any:
    block = paddle.static.default_main_program().current_block()
    out = block.create_var(dtype="float32")
    inputs = {"X": x, "Target": x}
    block.append_op(type="kldiv_loss", inputs=inputs, outputs={"Loss": out}, attrs={"reduction": "batchmean"})
    return out


def _soft(paddle: Any, x: Any) -> Any:
    return paddle.nn.functional.cross_entropy(x, x, soft_label=True)


def _turned(paddle: Any, x: Any) -> Any:
    wide = paddle.reshape(x, [1, 2, 3, 4, 5])
    return paddle.matmul(wide, wide, transpose_y=True)


UNTAKEN: Mapping[str, Build] = {
    "adaptive mean": lambda paddle, x: paddle.nn.functional.adaptive_avg_pool2d(x, [2, 5]),
    "adaptive maximum": lambda paddle, x: paddle.nn.functional.adaptive_max_pool2d(x, [2, 5]),
    "pool that keeps the size": lambda paddle, x: paddle.nn.functional.max_pool2d(x, 3, 1, padding="SAME"),
    "pool without padding": lambda paddle, x: paddle.nn.functional.avg_pool2d(x, 2, 2, padding="VALID"),
    "dropout": lambda paddle, x: paddle.nn.functional.dropout(x, 0.5, mode="downscale_in_infer"),
    "soft labels": _soft,
    "turned operand of five dimensions": _turned,
    "channels last": _channels,
    "mean of a batch": _divergence,
    "replicated border": lambda paddle, x: paddle.nn.functional.pad(x, [1, 1, 1, 1], mode="replicate"),
    "circular border": lambda paddle, x: paddle.nn.functional.pad(x, [1, 1, 1, 1], mode="circular"),
    "kept length": lambda paddle, x: paddle.expand(x[:, :1], [-1, 3, 4, 5]),
}
"""Calls that handlers refuse: ``nn_ops.cc``, ``loss_ops.cc``, ``math_ops.cc`` and ``tensor_ops.cc``."""


@pytest.mark.parametrize("name", UNTAKEN)
def test_a_call_that_a_handler_refuses_is_refused(paddle: Any, static: Any, name: str) -> None:
    """Handlers take some of an op's attributes, and raise for others."""
    out = UNTAKEN[name](paddle, static.data("x", [2, 3, 4, 5], "float32"))

    with check.raises((RuntimeError, NotImplementedError, ValueError), what=name):
        compiled(paddle, [out], size=2)


UNREAD: Mapping[str, Build] = {
    "axis of gather": lambda paddle, x: paddle.gather(x, paddle.assign(np.array([1, 0], np.int32)), axis=1),
    "beta of softplus": lambda paddle, x: paddle.nn.functional.softplus(x, beta=2.0),
    "padding of another size below": lambda paddle, x: paddle.nn.functional.conv2d(
        x, paddle.ones([1, 3, 3, 3]), padding=[1, 2, 0, 1]
    ),
    "size that a convolution keeps": lambda paddle, x: paddle.nn.functional.conv2d(
        x, paddle.ones([1, 3, 3, 3]), padding="SAME"
    ),
    "padding that counts": lambda paddle, x: paddle.nn.functional.avg_pool2d(x, 2, 2, padding=1, exclusive=False),
    "argmin without an axis": lambda paddle, x: paddle.argmin(x),
    "running sum without an axis": lambda paddle, x: paddle.cumsum(x),
    "norm without an axis": lambda paddle, x: paddle.norm(x, p=3),
    "align_mode": lambda paddle, x: paddle.nn.functional.interpolate(x, [8, 10], mode="bilinear", align_mode=1),
    "norm without a scale": lambda paddle, x: paddle.nn.functional.layer_norm(x, [5]),
}
"""Calls of which handlers do not read everything."""


@pytest.mark.emulator
@pytest.mark.parametrize("name", UNREAD)
def test_a_call_that_a_handler_does_not_read_is_refused(paddle: Any, static: Any, name: str) -> None:
    """A device computes something else in silence, or fails where the sources do not say; the emulator says why."""
    out = UNREAD[name](paddle, static.data("x", [2, 3, 4, 5], "float32"))

    with check.raises(NotImplementedError, match="does not read", what=name):
        compiled(paddle, [out], size=2)


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_a_place_keeps_no_dimension(paddle: Any, static: Any, name: str) -> None:
    """``keepdim`` is not read (``math_ops.cc``): the places come without the dimension, and are the same."""
    x = np.random.RandomState(3).permutation(120).astype(np.float32).reshape(2, 3, 4, 5)
    out = getattr(paddle, name)(static.data("x", [2, 3, 4, 5], "float32"), 1, keepdim=True)
    (got,) = compiled(paddle, [out], size=2).run(x)

    check.identical(actual=got, expected=getattr(np, name)(x, 1).astype(np.int32), what="the places")


def _cubic(size: int, new: int, corners: bool) -> np.ndarray:
    """The share that each pixel of a row has in each pixel of the resized one: cubic convolution with a = -3/4."""
    shares, a = np.zeros((new, size)), -0.75
    for pixel in range(new):
        place = pixel * (size - 1) / (new - 1) if corners else (pixel + 0.5) * size / new - 0.5
        for tap in range(int(np.floor(place)) - 1, int(np.floor(place)) + 3):
            far = abs(place - tap)
            near = ((a + 2) * far - (a + 3)) * far**2 + 1
            shares[pixel, min(max(tap, 0), size - 1)] += near if far <= 1 else a * (((far - 5) * far + 8) * far - 4)
    return shares


@pytest.mark.parametrize("corners", [False, True], ids=["centres", "corners"])
@pytest.mark.parametrize("size", [(7, 9), (3, 4), (8, 2)], ids=["up", "down", "both"])
def test_a_cubic_image_mixes_its_neighbours(paddle: Any, static: Any, size: Any, corners: bool) -> None:
    """Rows and columns are mixed by cubic convolution (``interp_handler``), and gradients by the same shares."""
    generator = np.random.default_rng(5)
    start, pull = (generator.uniform(-1, 1, (2, 3, *each)).astype(np.float32) for each in ((5, 6), size))
    image = paddle.create_parameter(
        start.shape, "float32", attr=paddle.ParamAttr("w", initializer=paddle.nn.initializer.Assign(start))
    )
    out = paddle.nn.functional.interpolate(image, list(size), mode="bicubic", align_corners=corners)
    paddle.optimizer.SGD(1.0).minimize(paddle.sum(out * static.data("x", list(pull.shape), "float32")))
    started(paddle)
    device = compiled(paddle, [out], size=2, training=True)
    (fetched,) = device.run(pull)
    device.sync()

    rows, columns = _cubic(5, size[0], corners), _cubic(6, size[1], corners)
    most = np.abs(rows).sum(axis=1).max() * np.abs(columns).sum(axis=1).max()
    back = np.abs(rows).sum(axis=0).max() * np.abs(columns).sum(axis=0).max()
    # Shares are polynomials of four places each; a pixel is a sum of sixteen products, a gradient one of all pixels.
    forth = Tolerance(UNIT * 64 * most, "the roundings of a cubic convolution", 0.0)
    check.close(actual=fetched, expected=rows @ start @ columns.T, tolerance=forth, what="the image")
    moved = Tolerance(UNIT * (64 + pull[0, 0].size) * back + UNIT, "the roundings of its gradient and a step", 0.0)
    check.close(actual=device.value("w"), expected=start - rows.T @ pull @ columns, tolerance=moved, what="the weight")


TABLE = np.arange(20, dtype=np.float32).reshape(5, 4) / 4


@pytest.mark.parametrize("accumulated", [1, 3])
def test_a_sparse_table_is_trained_as_a_dense_one(paddle: Any, static: Any, accumulated: int) -> None:
    """Every row steps by how often it was looked up; the handler does not read ``is_sparse`` (``tensor_ops.cc``)."""
    x = static.data("x", [3, 2], "int64")
    start = paddle.ParamAttr("w", initializer=paddle.nn.initializer.Assign(TABLE))
    loss = paddle.sum(static.nn.embedding(x, list(TABLE.shape), is_sparse=True, param_attr=start))
    paddle.optimizer.SGD(0.125).minimize(loss)
    started(paddle)
    options: Any = {"enable_gradient_accumulation": accumulated > 1, "accumulation_factor": accumulated}
    rows = np.array([[0, 1], [1, 3], [3, 3]])
    with check.accepted("a sparse table"):
        device = compiled(paddle, [loss], size=3, training=True, **options)
        for _ in range(2):
            device.run(np.concatenate([rows] * accumulated))
    device.sync()

    looked_up = np.bincount(rows.ravel(), minlength=len(TABLE)).astype(np.float32)[:, np.newaxis]
    check.identical(actual=device.value("w"), expected=TABLE - 2 * np.float32(0.125) * looked_up, what="the table")


SURE = 50.0
"""How much larger the score of one class is than the others'."""
PATHS = np.array([[1, 0, 2, 3, 3], [3, 1, 0, 2, 2], [1, 2, 2, 2, 2]])
"""The class of each step, 0 for none; steps behind the end of a sequence would spell something else."""
STEPS, LABELS = np.array([3, 5, 1]), np.array([[1, 2, 3], [3, 1, 2], [2, 1, 1]], np.int32)
CHARACTERS = np.array([2, 3, 1])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_sequences_have_their_own_lengths(paddle: Any, static: Any, dtype: str) -> None:
    """A sequence that spells its label for sure has no loss, and another that much; what is behind its end is not read.

    Lengths are of 64 bits in Paddle, and arrive as 32 (``loss_ops.cc``).
    """
    scores = np.where(PATHS.T[..., np.newaxis] == np.arange(4), np.float32(SURE), np.float32(0))
    feeds = {"x": scores, "label": LABELS, "steps": STEPS, "characters": CHARACTERS}
    variables = [static.data(name, list(array.shape), str(array.dtype)) for name, array in feeds.items()]
    loss = paddle.nn.functional.ctc_loss(*variables, blank=0, reduction="none")
    with check.accepted(f"lengths of {dtype}"):
        device = compiled(paddle, [loss], feeds=tuple(feeds), size=5)
        (fetched,) = device.run(scores, LABELS, STEPS.astype(dtype), CHARACTERS.astype(dtype))

    losses, expected = fetched.ravel().astype(np.float64), np.array([0, 0, SURE])
    unsure = PATHS.shape[1] * 3 * np.exp(-SURE)  # of each step the chance of the three other classes
    near = np.abs(losses - expected) <= unsure + expected * float(np.finfo(np.float32).eps)
    check.holds(near.all(), f"the losses are {losses.tolist()} where {expected.tolist()} are expected.")


@pytest.mark.parametrize("ignored", [-1, 1])
def test_losses_are_divided_by_how_many_count(paddle: Any, static: Any, ignored: int) -> None:
    """Every loss is divided by the number of labels that are not ignored.

    Paddle divides by the number, an IPU build by 1e-5 more, which keeps 0 away; both round twice.
    """
    scores = np.array([[0.5, -2.0], [3.0, -0.25], [-1.5, 4.0]], np.float32)
    label = np.array([[1, 0], [0, 1], [0, 0]], np.float32)
    if ignored < 0:
        label[1] = ignored
    count = int((label != ignored).sum())
    variables = [static.data(name, [3, 2], "float32") for name in ("x", "y")]
    whole, divided = (_sigmoid_loss(paddle, variables, ignored, normalize) for normalize in (False, True))
    with check.accepted("losses that are divided"):
        plain, fetched = compiled(paddle, [whole, divided], feeds=("x", "y"), size=3).run(scores, label)

    rounding = 2 * float(np.finfo(np.float32).eps)
    least, most = (plain.astype(np.float64) / number for number in (count + 1e-5, count))
    inside = (fetched >= least * (1 - rounding)) & (fetched <= most * (1 + rounding))
    check.holds(inside.all(), f"the losses {plain.tolist()} of {count} labels become {fetched.tolist()}.")
    check.equal(actual=int((plain != 0).sum()), expected=count, what="the number of losses")


def _sigmoid_loss(paddle: Any, variables: Any, ignored: int, normalize: bool) -> Any:
    block = paddle.static.default_main_program().current_block()
    out = block.create_var(dtype="float32", shape=[3, 2])
    block.append_op(
        type="sigmoid_cross_entropy_with_logits",
        inputs=dict(zip(("X", "Label"), variables)),
        outputs={"Out": out},
        attrs={"normalize": normalize, "ignore_index": ignored},
    )
    return out
