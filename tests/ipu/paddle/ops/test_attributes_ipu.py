"""Attributes of ops that only Paddle's handlers know, and ops that Paddle alone has, or uses in its own way."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence, Tuple

import numpy as np
import pytest

from ipu_conformance import check
from ipu_conformance.oracle.op import OPS
from ipu_conformance.oracle.sample import Sample
from ipu_conformance.oracle.tolerance.ops import FORMATS, Tolerance, for_outputs

from ..device import appended, compiled, held, started

UNIT = FORMATS["float32"].unit
IMAGE = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
ROWS = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
TWO, X = np.array([2], np.float32), np.arange(8, dtype=np.float32).reshape(4, 2)


def _constant(paddle: Any, *values: float, dtype: str = "int32") -> Any:
    """Numbers as a constant of the program."""
    return paddle.full([1], values[0], dtype) if len(values) == 1 else paddle.assign(np.array(values, dtype))


Row = Tuple[Callable[..., Any], Sequence[np.ndarray], np.ndarray]


def _resized(rows: int, columns: int, size: Callable[[Any], Any], by: str = "size") -> Row:
    """A picture that grows to the size, or by the factors, that constants of the program hold (``nn_ops.cc``)."""
    return (
        lambda paddle, x: paddle.nn.functional.interpolate(x, mode="nearest", **{by: size(paddle)}),
        [IMAGE],
        IMAGE.repeat(rows, 2).repeat(columns, 3),
    )


SIZES: Mapping[str, Row] = {
    "list-of-tensors": _resized(3, 3, lambda paddle: [_constant(paddle, 6), _constant(paddle, 9)]),
    "tensor-and-number": _resized(2, 3, lambda paddle: [_constant(paddle, 4), 9]),
    "vector": _resized(5, 2, lambda paddle: _constant(paddle, 10, 6)),
    "factors": _resized(2, 4, lambda paddle: _constant(paddle, 2, 4, dtype="float32"), "scale_factor"),
    "factor": _resized(3, 3, lambda paddle: _constant(paddle, 3, dtype="float32"), "scale_factor"),
}
# No document says so of an IPU build: its handlers do not look at axes that are tensors, or it has no handler.
EMULATED: Mapping[str, Row] = {
    "concat": (
        lambda paddle, x: paddle.concat([x, x], axis=_constant(paddle, 1)), [ROWS], np.concatenate([ROWS, ROWS], 1),
    ),
    "split": (lambda paddle, x: paddle.split(x, 2, axis=_constant(paddle, 2))[1], [ROWS], ROWS[:, :, 2:]),
    "unsqueeze": (lambda paddle, x: paddle.unsqueeze(x, axis=_constant(paddle, 2)), [ROWS], ROWS[:, :, np.newaxis]),
    "gather": (
        lambda paddle, x: paddle.gather(x, _constant(paddle, 1, 0, 1), axis=_constant(paddle, 0)),
        [ROWS], ROWS[[1, 0, 1]],
    ),
    "topk": (lambda paddle, x: paddle.topk(x, _constant(paddle, 3))[0], [ROWS], ROWS[:, :, :0:-1]),
    "linspace-up": (lambda paddle, x: x * paddle.linspace(0.0, 1.0, 5), [TWO], TWO * [0, 0.25, 0.5, 0.75, 1]),
    "linspace-down": (lambda paddle, x: x * paddle.linspace(3.0, -1.0, 5), [TWO], TWO * [3, 2, 1, 0, -1]),
    "linspace-one": (lambda paddle, x: x * paddle.linspace(2.0, 5.0, 1), [TWO], TWO * [2]),
    "number in a part": (
        lambda paddle, x: paddle.static.setitem(x, (slice(None), slice(1, None)), 0.5),
        [ROWS[:, :, 0]], np.array([[0, 0.5, 0.5], [12, 0.5, 0.5]]),
    ),
    # A row that is named is emptied, and gets the sum of what is written to it.
    "rows that meet": (
        lambda paddle, *given: paddle.scatter(*given, overwrite=False),
        [X, np.array([2, 0, 2]), np.array([[1, 2], [4, 8], [16, 32]], np.float32)],
        np.array([[4, 8], [2, 3], [17, 34], [6, 7]]),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # Paddle warns of an attribute of linspace that it sets itself
@pytest.mark.parametrize("name", [*SIZES, *(pytest.param(name, marks=pytest.mark.emulator) for name in EMULATED)])
def test_a_call_computes_what_it_says(paddle: Any, static: Any, name: str) -> None:
    """What a constant of the program holds counts as a size, an axis or a number, and every row has its values."""
    ask, fed, expected = {**SIZES, **EMULATED}[name]
    feeds = ("x", "y", "z")[: len(fed)]
    variables = [static.data(feed, list(array.shape), str(array.dtype)) for feed, array in zip(feeds, fed)]
    with check.accepted(f"the call {name}"):
        (fetched,) = compiled(paddle, [ask(paddle, *variables) * 2.0], feeds=feeds, size=len(fed[0])).run(*fed)

    check.identical(actual=fetched, expected=2 * expected.astype(np.float32), what=f"twice the result of {name}")


Build = Callable[[Any, Any], Any]


def _channels(paddle: Any, x: Any) -> Any:
    ones = paddle.ones([5])
    return appended(paddle, "affine_channel", {"X": x, "Scale": ones, "Bias": ones}, data_layout="NHWC")


def _divergence(paddle: Any, x: Any) -> Any:
    return appended(paddle, "kldiv_loss", {"X": x, "Target": x}, slot="Loss", reduction="batchmean")


def _turned(paddle: Any, x: Any) -> Any:
    wide = paddle.reshape(x, [1, 2, 3, 4, 5])
    return paddle.matmul(wide, wide, transpose_y=True)


def _classes(paddle: Any, x: Any) -> Any:
    given: Any = {"depth": 6, "dtype": 5, "allow_out_of_range": True}
    return appended(paddle, "one_hot_v2", {"X": paddle.cast(x, "int32")}, **given)


def _repeated(name: str, shape: Any) -> Build:
    return lambda paddle, x: getattr(paddle, name)(x[:1, :1, 0, 0], _constant(paddle, *shape)) * 2.0


UNTAKEN: Mapping[str, Build] = {
    "adaptive mean": lambda paddle, x: paddle.nn.functional.adaptive_avg_pool2d(x, [2, 5]),
    "adaptive maximum": lambda paddle, x: paddle.nn.functional.adaptive_max_pool2d(x, [2, 5]),
    "pool that keeps the size": lambda paddle, x: paddle.nn.functional.max_pool2d(x, 3, 1, padding="SAME"),
    "pool without padding": lambda paddle, x: paddle.nn.functional.avg_pool2d(x, 2, 2, padding="VALID"),
    "dropout": lambda paddle, x: paddle.nn.functional.dropout(x, 0.5, mode="downscale_in_infer"),
    "soft labels": lambda paddle, x: paddle.nn.functional.cross_entropy(x, x, soft_label=True),
    "turned operand of five dimensions": _turned,
    "channels last": _channels,
    "mean of a batch": _divergence,
    "replicated border": lambda paddle, x: paddle.nn.functional.pad(x, [1, 1, 1, 1], mode="replicate"),
    "circular border": lambda paddle, x: paddle.nn.functional.pad(x, [1, 1, 1, 1], mode="circular"),
    "kept length": lambda paddle, x: paddle.expand(x[:, :1], [-1, 3, 4, 5]),
}
"""Calls that handlers refuse: ``nn_ops.cc``, ``loss_ops.cc``, ``math_ops.cc`` and ``tensor_ops.cc``."""
REPEATED: Mapping[str, Build] = {
    f"{name} {shape}": _repeated(name, shape) for name in ("tile", "expand") for shape in ([2, 3], [3, 2])
}
"""``tile`` and ``expand`` take numbers (``tensor_ops.cc``)."""
ATTRIBUTES: Mapping[str, Build] = {
    "mish": lambda paddle, x: appended(paddle, "mish", {"X": x}, threshold=10.0),
    "one_hot_v2": _classes,
}
"""``mish`` bends at 20, and classes are in range (``activation_ops.cc``, ``tensor_ops.cc``)."""
UNREAD: Mapping[str, Build] = {
    "axis of gather": lambda paddle, x: paddle.gather(x, _constant(paddle, 1, 0), axis=1),
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
"""Calls of which handlers do not read everything: a device computes something else in silence, or fails where the
sources do not say; the emulator says why."""
REFUSED = [
    *(pytest.param(*row, (RuntimeError, NotImplementedError, ValueError), "", id=row[0]) for row in UNTAKEN.items()),
    *(pytest.param(*row, (RuntimeError, NotImplementedError), "", id=row[0]) for row in REPEATED.items()),
    *(pytest.param(*row, NotImplementedError, "", id=row[0]) for row in ATTRIBUTES.items()),
    *(
        pytest.param(*row, NotImplementedError, "does not read", id=row[0], marks=pytest.mark.emulator)
        for row in UNREAD.items()
    ),
]


@pytest.mark.parametrize(("name", "build", "errors", "match"), REFUSED)
def test_a_call_that_a_handler_refuses_is_refused(
    paddle: Any, static: Any, name: str, build: Build, errors: Any, match: str
) -> None:
    """Handlers take some of an op's attributes, and raise for others."""
    out = build(paddle, static.data("x", [2, 3, 4, 5], "float32"))

    with check.raises(errors, match=match, what=name):
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
    """A label that is to be ignored has no loss; every other one has its own, divided by how many there are.

    Paddle divides by the number, an IPU build by 1e-5 more, which keeps 0 away; both round twice (``loss_ops.cc``).
    """
    scores = np.array([[0.5, -2.0], [3.0, -0.25], [-1.5, 4.0]], np.float32)
    label = np.array([[1, 0], [0, 1], [0, 0]], np.float32)
    if ignored < 0:
        label[1] = ignored
    counted = label != ignored
    inputs = {slot: static.data(name, [3, 2], "float32") for slot, name in (("X", "x"), ("Label", "y"))}
    losses = [
        appended(
            paddle, "sigmoid_cross_entropy_with_logits", inputs, shape=[3, 2], normalize=divided, ignore_index=index
        )
        for divided, index in ((False, -100), (False, ignored), (True, ignored))
    ]
    with check.accepted("losses that are divided"):
        every, plain, fetched = compiled(paddle, losses, feeds=("x", "y"), size=3).run(scores, label)

    rounding = 2 * float(np.finfo(np.float32).eps)
    least, most = (plain.astype(np.float64) / number for number in (counted.sum() + 1e-5, counted.sum()))
    inside = (fetched >= least * (1 - rounding)) & (fetched <= most * (1 + rounding))
    check.identical(actual=plain, expected=np.where(counted, every, np.float32(0)), what="the losses")
    check.holds(inside.all(), f"the losses {plain.tolist()} of {counted.sum()} labels become {fetched.tolist()}.")
    check.equal(actual=int((plain != 0).sum()), expected=int(counted.sum()), what="the number of losses")


@pytest.mark.emulator
@pytest.mark.parametrize(("k", "shares"), [(1, [0.5, 0.25]), (2, [0.75, 0.25]), (4, [1.0, 1.0])])
def test_the_share_of_labels_among_the_best(paddle: Any, static: Any, k: int, shares: Any) -> None:
    """Of four samples so many have their label among the k largest scores; every micro-batch has its own share."""
    scores, label = static.data("scores", [4, 4], "float32"), static.data("label", [4, 1], "int64")
    accuracy = paddle.metric.accuracy(scores, label, k=k)
    device = compiled(paddle, [accuracy], feeds=["scores", "label"], batches_per_step=2)
    batch = np.array([[0, 3, 1, 2], [4, 3, 2, 1], [1, 2, 3, 4], [2, 0, 1, 3]], np.float32)
    (fetched,) = device.run(np.concatenate([batch, batch]), np.array([[1], [1], [3], [1], [1], [3], [1], [1]]))

    check.identical(actual=fetched.ravel(), expected=np.array(shares, np.float32), what="the accuracy")


LENGTH, BATCH, FEATURES, HIDDEN = 3, 2, 4, 5


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_a_recurrent_layer_runs_and_trains(paddle: Any, static: Any, name: str) -> None:
    """A layer of Paddle's makes of every sequence what is specified, and a step changes all of its weights."""
    x = static.data("x", [BATCH, LENGTH, FEATURES], "float32")
    layer = getattr(paddle.nn, name)(FEATURES, HIDDEN)
    out, _ = layer(x)
    paddle.optimizer.SGD(1.0).minimize(paddle.mean(paddle.square(out)))
    started(paddle)
    weights = [weight.name for weight in layer.parameters()]
    before = [held(paddle, weight).astype(np.float64) for weight in weights]
    device = compiled(paddle, [out], size=BATCH, training=True)
    fed = np.random.default_rng(7).uniform(-1, 1, (BATCH, LENGTH, FEATURES)).astype(np.float32)
    (fetched,) = device.run(fed)
    device.sync()

    op = OPS[name.lower()]
    states = [np.zeros((1, BATCH, HIDDEN))] * (2 if name == "LSTM" else 1)
    sample = Sample((fed.swapaxes(0, 1).astype(np.float64), *states, *before))
    expected, *_ = op.forward(*sample.inputs)
    limit, *_ = for_outputs(op, sample)
    turned, what = fetched.swapaxes(0, 1), "the output of the layer"
    check.close(actual=turned, expected=expected, tolerance=limit, what=what, dtype="float32")
    for weight, start in zip(weights, before):
        check.differs(actual=held(paddle, weight).astype(np.float64), other=start, what=f"the weight {weight}")


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_classes_may_be_on_any_axis(paddle: Any, static: Any, axis: int) -> None:
    """The class that is sure has no loss, and another one that much; chances are along the axis too."""
    places = np.indices((2, 3, 4))
    classes = places.shape[1:][axis]
    sure = np.take(places.sum(0), [0], axis) % classes
    label = (sure + np.take(places.sum(0), [0], axis) // 2) % classes
    scores = np.where(places[axis] == sure, np.float32(SURE), np.float32(0))
    variables = [static.data("x", list(scores.shape), "float32"), static.data("y", list(label.shape), "int32")]
    losses = paddle.nn.functional.softmax_with_cross_entropy(*variables, axis=axis, return_softmax=True)
    with check.accepted(f"classes on the axis {axis}"):
        device = compiled(paddle, list(losses), feeds=("x", "y"), size=2)
        fetched, chances = device.run(scores, label.astype(np.int32))

    check.equal(actual=list(fetched.shape), expected=list(label.shape), what="the shape of the losses")
    expected = np.where(label == sure, 0, SURE)
    unsure = classes * np.exp(-SURE) + SURE * float(UNIT)
    for what, actual, wanted in (("losses", fetched, expected), ("chances", chances, places[axis] == sure)):
        near = np.abs(actual.astype(np.float64) - wanted) <= unsure
        check.holds(near.all(), f"the {what} are {actual.tolist()} where {(1 * wanted).tolist()} are expected.")
