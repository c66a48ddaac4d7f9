"""Calls of Paddle's API for the rows of contractions, diagonals, written parts, images and recurrent layers."""

from __future__ import annotations

import warnings
from typing import Any, List

import numpy as np
import paddle
import paddle.nn.functional as F

from .translation_use import Build, Use, numbers, raw, shares, whole

SPECIAL = np.array([[1.0, np.inf, -2.0], [np.nan, -np.inf, 0.5]], np.float32)


def _einsum(equation: str) -> Build:
    return lambda *operands: paddle.einsum(equation, *operands)


def contractions() -> List[Use]:
    """Einsums of one, two and three operands, and products by blocks."""
    a, b, c = numbers(2, 3, 4), numbers(2, 4, 5, seed=5), numbers(5, 3, seed=6)
    return [
        Use("einsum stacks", _einsum("bij,bjk->bik"), (a, b)),
        Use("einsum turned", _einsum("bij,bjk->kbi"), (a, b)),
        Use("einsum implicit", _einsum("bij,bjk"), (a, b)),
        Use("einsum sums", _einsum("bij,bjk->i"), (a, b)),
        Use("einsum three", _einsum("bij,bjk,kl->bil"), (a, b, c)),
        Use("einsum outer", _einsum("i,j->ij"), (numbers(3), numbers(4, seed=5))),
        Use("einsum dots", _einsum("...ij,jk->...ik"), (a, numbers(4, 5))),
        Use("einsum two dots", _einsum("...i,...i->..."), (a, numbers(3, 4, seed=5))),
        Use("einsum one", _einsum("ijk->ki"), (a,)),
        Use("einsum diagonal", _einsum("jii->ij"), (numbers(4, 3, 3),)),
        Use("einsum trace", _einsum("ii,ij->j"), (numbers(3, 3), numbers(3, 4, seed=5))),
        Use("kron", paddle.kron, (numbers(2, 3), numbers(3, 2, seed=5))),
        Use("kron ranks", paddle.kron, (numbers(3), numbers(2, 2, seed=5))),
    ]


def diagonals() -> List[Use]:
    """Diagonals that are read, added up and written."""
    square, stack = numbers(3, 4), numbers(2, 3, 4)
    return [
        Use("diag_v2 vector", lambda v: paddle.diag(v, 1, 2.5), (numbers(3),)),
        Use("diag_v2 below", lambda v: paddle.diag(v, -2), (numbers(3),)),
        Use("diag_v2 matrix", lambda v: paddle.diag(v, -1), (square,)),
        Use("diagonal", lambda v: paddle.diagonal(v, 1, 2, 0), (stack,)),
        Use("trace", lambda v: paddle.trace(v, 1), (square,)),
        Use("trace turned", lambda v: paddle.trace(v, 1, 1, 0), (square,)),
        Use("trace of some", lambda v: paddle.trace(v, -1, 0, 2), (stack,)),
        Use("diag_embed", lambda v: F.diag_embed(v, -1), (numbers(2, 3),)),
        Use("diag_embed elsewhere", lambda v: F.diag_embed(v, 1, 2, 0), (numbers(2, 3),)),
    ]


def _assigned(index: Any) -> Build:
    return lambda v, w: paddle.static.setitem(v, index, w)


def _spaced(start: float, stop: float, count: int) -> Build:
    def build(variable: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Paddle warns of an attribute that it sets itself
            return variable + paddle.linspace(start, stop, count)

    return build


def parts() -> List[Use]:
    """Parts of tensors that are written, grids, and what is not finite."""
    x = numbers(3, 4, 5)
    every_second = (slice(None, None, 2), slice(3, 0, -1))
    return [
        Use("meshgrid", lambda v, w: paddle.meshgrid(v, w)[0], (numbers(3), numbers(4, seed=5))),
        Use("meshgrid second", lambda u, v, w: paddle.meshgrid(u, v, w)[1], (numbers(2), numbers(3), numbers(4))),
        Use("set_value", _assigned((slice(None), slice(1, 3))), (x, numbers(3, 2, 5, seed=5))),
        Use("set_value broadcast", _assigned((slice(0, 2), slice(1, 3))), (x, numbers(2, 5, seed=5))),
        Use("set_value steps", _assigned(every_second), (x, numbers(2, 3, 5, seed=5))),
        Use("set_value row", _assigned((slice(None), 1)), (x, numbers(3, 5, seed=5))),
        Use("set_value all", _assigned((slice(None),)), (x, numbers(4, 5, seed=5))),
        Use("set_value number", lambda v: paddle.static.setitem(v, (slice(None), slice(-2, None)), 2.5), (x,)),
        Use("set_value element", lambda v: paddle.static.setitem(v, (1, 2, -1), -1.5), (x,)),
        Use("scatter_nd_add", paddle.scatter_nd_add, (numbers(4, 3), np.array([[2], [0], [2]]), numbers(3, 3, seed=5))),
        Use(
            "scatter_nd_add deep",
            paddle.scatter_nd_add,
            (numbers(4, 3, 2), np.array([[[2, 1], [0, 2]], [[2, 1], [3, 0]]]), numbers(2, 2, 2, seed=5)),
        ),
        Use("accuracy", lambda v, i: paddle.metric.accuracy(v, i, k=2), (numbers(8, 5), whole(5, 8, 1))),
        Use("linspace", _spaced(-1.0, 3.0, 5), (x,)),
        Use("linspace one", _spaced(2.0, 3.0, 1), (x,)),
        Use("isfinite_v2", paddle.isfinite, (SPECIAL,)),
        Use("isfinite_v2 whole", paddle.isfinite, (whole(5, 2, 3),)),
        Use("isnan", raw("isnan", dtype="bool"), (SPECIAL,)),
        Use("isinf", raw("isinf", dtype="bool"), (numbers(2, 3),)),
    ]


def distances() -> List[Use]:
    """Distances, losses of pairs and of signs, and norms by statistics that are given."""
    x, y = numbers(3, 4), numbers(3, 4, seed=5)
    label = whole(2, 4, 1).astype(np.float32)
    powers = {"0": 0.0, "1": 1.0, "2": 2.0, "3": 3.0, "inf": float("inf"), "-inf": float("-inf")}
    statistics = (np.full(4, 8.0, np.float32), numbers(4), 8.0 + shares(4))
    slots = ("X", "BatchSize", "BatchSum", "BatchSquareSum")
    return [
        *(Use(f"dist {name}", lambda v, w, p=p: paddle.dist(v, w, p), (x, y)) for name, p in powers.items()),
        Use("dist broadcast", paddle.dist, (x, numbers(4, seed=5))),
        Use(
            "rank_loss",
            raw("rank_loss", ("Left", "Right", "Label")),
            (numbers(4, 1), numbers(4, 1, seed=5), label),
        ),
        Use("hinge_loss", raw("hinge_loss", ("Logits", "Labels"), ("Loss",)), (numbers(4, 1), label)),
        Use("data_norm", raw("data_norm", slots, ("Y", "Means", "Scales")), (x, *statistics)),
        Use(
            "data_norm scaled",
            raw("data_norm", (*slots, "scale_w", "bias"), ("Y", "Means", "Scales"), enable_scale_and_shift=True),
            (x, *statistics, shares(4), numbers(4, seed=6)),
        ),
    ]


def images() -> List[Use]:
    """Windows, points between pixels, and boxes."""
    image, body = numbers(2, 3, 5, 6), numbers(1, 2, 2, 3, 4)
    grid = (shares(2, 4, 3, 2) * 2.5 - 1.25).astype(np.float32)
    predicted, sizes = numbers(2, 2 * 8, 3, 2), np.array([[24, 16], [48, 30]], np.int32)

    def boxes(place: int, **more: Any) -> Build:
        return lambda v, s: paddle.vision.ops.yolo_box(v, s, [10, 13, 16, 30], 3, 0.4, 8, **more)[place]

    found = [
        Use(
            f"grid_sampler {mode} {border} {corners}",
            lambda v, g, m=mode, b=border, c=corners: F.grid_sample(v, g, m, b, c),
            (image, grid),
        )
        for mode in ("bilinear", "nearest")
        for border in ("zeros", "border")
        for corners in (True, False)
    ]
    return [
        *found,
        Use("unfold", lambda v: F.unfold(v, [2, 3], 1, [1, 2], 1), (image,)),
        Use("unfold apart", lambda v: F.unfold(v, 2, [2, 1], [1, 0, 0, 2], [1, 2]), (image,)),
        Use(
            "trilinear",
            lambda v: F.interpolate(v, [4, 5, 3], mode="trilinear", data_format="NCDHW"),
            (body,),
        ),
        Use(
            "trilinear corners",
            lambda v: F.interpolate(v, [4, 5, 3], mode="trilinear", align_corners=True, data_format="NCDHW"),
            (body,),
        ),
        Use("linear", lambda v: F.interpolate(v, [5], mode="linear", data_format="NCW"), (numbers(1, 2, 3),)),
        Use("yolo_box", boxes(0), (predicted, sizes)),
        Use("yolo_box zoomed", boxes(0, scale_x_y=1.5, clip_bbox=False), (predicted, sizes)),
        Use("yolo_box scores", boxes(1), (predicted, sizes)),
    ]


def _layer(mode: str, *, layers: int = 1, both: bool = False, place: int = 0, lengths: bool = False) -> Build:
    """A recurrent layer whose weights are fed; ``place`` 0 is what it makes, 1 and 2 the states in which it ends."""

    def build(source: Any, *given: Any) -> Any:
        rest = given[1:] if lengths else given
        block = paddle.static.default_main_program().current_block()
        states = 2 if mode == "LSTM" else 1
        hidden = rest[0].shape[-1]
        made = [block.create_var(dtype="float32") for _ in range(1 + states)]
        other = [block.create_var(dtype="uint8") for _ in range(2)]
        block.append_op(
            type="rnn",
            inputs={
                "Input": source,
                "PreState": list(rest[:states]),
                "WeightList": list(rest[states:]),
                **({"SequenceLength": given[0]} if lengths else {}),
            },
            outputs={"Out": made[0], "State": made[1:], "Reserve": other[0], "DropoutState": other[1]},
            attrs={
                "mode": mode,
                "num_layers": layers,
                "is_bidirec": both,
                "hidden_size": hidden,
                "input_size": source.shape[-1],
                "is_test": True,
            },
        )
        return made[place]

    return build


def _fed(mode: str, *, layers: int = 1, both: bool = False) -> Any:
    """A sequence of 3 steps of 2 samples, states and weights."""
    inputs, hidden, gates = 4, 3, {"LSTM": 4, "GRU": 3}.get(mode, 1)
    directions = 1 + both
    states = [numbers(layers * directions, 2, hidden, seed=20 + n) for n in range(2 if mode == "LSTM" else 1)]
    weights, biases = [], []
    for cell in range(layers * directions):
        width = inputs if cell < directions else hidden * directions
        weights += [numbers(gates * hidden, size, seed=30 + 2 * cell + n) for n, size in enumerate((width, hidden))]
        biases += [numbers(gates * hidden, seed=60 + 2 * cell + n) for n in range(2)]
    return (numbers(3, 2, inputs), *states, *weights, *biases)


def _with_lengths(mode: str) -> Any:
    source, *rest = _fed(mode)
    return (source, np.array([2, 3], np.int32), *rest)


def recurrent() -> List[Use]:
    """Every kind of cell, two layers, and both directions."""
    deep = {"layers": 2, "both": True}
    return [
        *(Use(f"rnn {mode}", _layer(mode), _fed(mode)) for mode in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")),
        Use("rnn LSTM lengths", _layer("LSTM", lengths=True), _with_lengths("LSTM")),
        Use("rnn LSTM lengths states", _layer("LSTM", lengths=True, place=1), _with_lengths("LSTM")),
        Use("rnn GRU lengths", _layer("GRU", lengths=True), _with_lengths("GRU")),
        Use("rnn LSTM states", _layer("LSTM", place=2), _fed("LSTM")),
        Use("rnn LSTM deep", _layer("LSTM", **deep), _fed("LSTM", **deep)),  # type: ignore[arg-type]
        Use("rnn GRU deep states", _layer("GRU", place=1, **deep), _fed("GRU", **deep)),  # type: ignore[arg-type]
    ]


def every() -> List[Use]:
    """All of them."""
    return [*contractions(), *diagonals(), *parts(), *distances(), *images(), *recurrent()]
