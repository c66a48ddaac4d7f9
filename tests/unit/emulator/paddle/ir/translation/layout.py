"""Calls of Paddle's API, and raw ops, that move values, and of contractions, distances, images and recurrent layers."""

from __future__ import annotations

import itertools
from typing import Any, List

import numpy as np
import paddle
import paddle.nn.functional as F

from .calls import Build, OpCall, call, fractions, integers, linspace, normals, raw

SPECIAL = np.array([[1.0, np.inf, -2.0], [np.nan, -np.inf, 0.5]], np.float32)


def _einsum(equation: str) -> Build:
    return lambda *operands: paddle.einsum(equation, *operands)


def moves() -> List[OpCall]:
    """Tensors that are reshaped, cut, joined, gathered, sorted and filled."""
    x = normals(2, 3, 4)
    return [
        call("reshape2", lambda v: paddle.reshape(v, [0, -1]), x),
        call("reshape", raw("reshape", shape=[4, 6]), x),
        call("flatten2", raw("flatten2", outputs="Out XShape", axis=1), x),
        call("flatten_contiguous_range", lambda v: paddle.flatten(v, 1), x),
        call("flatten first", lambda v: paddle.flatten(v, 0, 1), x),
        call("transpose2", lambda v: paddle.transpose(v, [2, 0, 1]), x),
        call("transpose", raw("transpose", axis=[1, 0, 2]), x),
        call("squeeze2", lambda v: paddle.squeeze(v, [1]), normals(3, 1, 4)),
        call("squeeze nothing", lambda v: paddle.squeeze(v, [0]), normals(3, 1, 4)),
        call("unsqueeze2", lambda v: paddle.unsqueeze(v, [0, -1]), x),
        call("concat", lambda v, w: paddle.concat([v, w], -1), x, normals(2, 3, 2)),
        call("stack", lambda v, w: paddle.stack([v, w], 1), x, normals(2, 3, 4, seed=5)),
        call("unstack", lambda v: paddle.unstack(v, 1)[2], x),
        call("unbind", lambda v: paddle.unbind(v, 0)[1], x),
        call("split", lambda v: paddle.split(v, [1, -1], 2)[1], x),
        call("split evenly", lambda v: paddle.split(v, 2, 2)[1], x),
        call("slice", lambda v: v[:, 1:, 0], x),
        call("slice a number", lambda v: v[1, 2, 3], x),
        call("strided_slice", lambda v: paddle.strided_slice(v, [2], [3], [0], [-2]), x),
        call("strided_slice of all, backwards", lambda v: v[::-1, ::2], x),
        call("expand_v2", lambda v: paddle.expand(v, [2, -1, 4]), normals(3, 1)),
        call("expand_as_v2", paddle.expand_as, normals(1, 4), normals(3, 4)),
        call("tile", lambda v: paddle.tile(v, [2, 1, 3]), normals(3, 2)),
        call("expand", raw("expand", expand_times=[2, 3]), normals(3, 2)),
        call("flip", lambda v: paddle.flip(v, [0, 2]), x),
        call("roll", lambda v: paddle.roll(v, [1, -2], [0, 2]), x),
        call("gather", paddle.gather, x, np.array([1, 0, 1]), axis=0),
        call("index_select", paddle.index_select, x, np.array([2, 0]), axis=1),
        call("gather_nd", paddle.gather_nd, x, np.array([[1, 2], [0, 1]])),
        call("take_along_axis", lambda v, i: paddle.take_along_axis(v, i, 1), normals(3, 4), integers(4, 3, 2)),
        call("scatter", paddle.scatter, normals(4, 3), np.array([2, 0]), normals(2, 3, seed=5)),
        call(
            "scatter-sum",
            paddle.scatter,
            normals(4, 3, 2),
            np.array([2, 0, 2]),
            normals(3, 3, 2, seed=5),
            overwrite=False,
        ),
        call("size", lambda v: paddle.cast(paddle.numel(v), "int32"), x),
        call("lookup_table_v2", F.embedding, integers(5, 2, 3), normals(5, 4)),
        call("lookup_table", raw("lookup_table", "Ids W", dtype="float32"), integers(5, 3, 1), normals(5, 4)),
        call("one_hot_v2", lambda i: F.one_hot(i, 5), integers(5, 2, 3)),
        call("top_k_v2", lambda v: paddle.topk(v, 2, axis=1)[0], x),
        call("top_k_v2 indices", lambda v: paddle.topk(v, 2, axis=1)[1], x),
        call("top_k", raw("top_k", outputs="Out Indices", k=2), normals(3, 5)),
        call("argsort", lambda v: paddle.argsort(v, 1, descending=True), x),
        call("arg_max", lambda v: paddle.argmax(v, 1, keepdim=True), x),
        call("arg_min", paddle.argmin, x),
        call("arg_min of all, kept", lambda v: paddle.argmin(v, keepdim=True), x),
        call("arg_max int32", lambda v: paddle.argmax(v, 1, dtype="int32"), x),
        call("cast", lambda v: paddle.cast(v, "int32"), normals(3, 4) * 5),
        call("pad3d", lambda v: F.pad(v, [1, 2, 0, 1], value=0.5), normals(1, 2, 3, 3)),
        call("pad3d reflect", lambda v: F.pad(v, [1, 2, 0, 1], mode="reflect"), normals(1, 2, 3, 4)),
        call("pad", raw("pad", paddings=[0, 1, 2, 0], pad_value=0.25), normals(2, 3)),
        call("pixel_shuffle", lambda v: F.pixel_shuffle(v, 2), normals(1, 8, 2, 3)),
        call("cumsum", lambda v: paddle.cumsum(v, 1), x),
        call("cumsum flat", paddle.cumsum, x),
        call("tril_triu", lambda v: paddle.tril(v, -1), normals(3, 4)),
        call("triu", lambda v: paddle.triu(v, 1), normals(2, 3, 4)),
        call("shape", paddle.shape, x),
        call("fill_any_like", lambda v: paddle.full_like(v, 2.5), x),
        call("fill_zeros_like", raw("fill_zeros_like"), x),
        call("fill_constant", lambda v: v + paddle.full([3, 1], 2.5), x),
        call("fill_constant large", lambda v: v + paddle.full([300, 300], 2.5), normals(1)),
        call("assign_value", lambda v: v + paddle.assign(np.array([1, 2, 3, 4], np.float32)), x),
        call("range", raw("range", "Start End Step"), *tuple(np.array([n], np.float32) for n in (1, 8, 2))),
        call("eye", lambda v: v + paddle.eye(3, 4), x),
        call(
            "fill_constant_batch_size_like",
            lambda v: v + raw("fill_constant_batch_size_like", "Input", shape=[7, 4], value=1.5, dtype="float32")(v),
            normals(3, 4),
        ),
    ]


def contractions() -> List[OpCall]:
    """Einsums of one, two and three operands, and products by blocks."""
    a, b, c = normals(2, 3, 4), normals(2, 4, 5, seed=5), normals(5, 3, seed=6)
    return [
        call("einsum stacks", _einsum("bij,bjk->bik"), a, b),
        call("einsum turned", _einsum("bij,bjk->kbi"), a, b),
        call("einsum implicit", _einsum("bij,bjk"), a, b),
        call("einsum sums", _einsum("bij,bjk->i"), a, b),
        call("einsum three", _einsum("bij,bjk,kl->bil"), a, b, c),
        call("einsum outer", _einsum("i,j->ij"), normals(3), normals(4, seed=5)),
        call("einsum dots", _einsum("...ij,jk->...ik"), a, normals(4, 5)),
        call("einsum two dots", _einsum("...i,...i->..."), a, normals(3, 4, seed=5)),
        call("einsum one", _einsum("ijk->ki"), a),
        call("einsum diagonal", _einsum("jii->ij"), normals(4, 3, 3)),
        call("einsum trace", _einsum("ii,ij->j"), normals(3, 3), normals(3, 4, seed=5)),
        call("kron", paddle.kron, normals(2, 3), normals(3, 2, seed=5)),
        call("kron ranks", paddle.kron, normals(3), normals(2, 2, seed=5)),
    ]


def diagonals() -> List[OpCall]:
    """Diagonals that are read, added up and written."""
    square, stack = normals(3, 4), normals(2, 3, 4)
    return [
        call("diag_v2 vector", lambda v: paddle.diag(v, 1, 2.5), normals(3)),
        call("diag_v2 below", lambda v: paddle.diag(v, -2), normals(3)),
        call("diag_v2 matrix", lambda v: paddle.diag(v, -1), square),
        call("diagonal", lambda v: paddle.diagonal(v, 1, 2, 0), stack),
        call("trace", lambda v: paddle.trace(v, 1), square),
        call("trace turned", lambda v: paddle.trace(v, 1, 1, 0), square),
        call("trace of some", lambda v: paddle.trace(v, -1, 0, 2), stack),
        call("diag_embed", lambda v: F.diag_embed(v, -1), normals(2, 3)),
        call("diag_embed elsewhere", lambda v: F.diag_embed(v, 1, 2, 0), normals(2, 3)),
    ]


def _assigned(index: Any) -> Build:
    return lambda v, w: paddle.static.setitem(v, index, w)


def parts() -> List[OpCall]:
    """Parts of tensors that are written, grids, and what is not finite."""
    x = normals(3, 4, 5)
    every_second = (slice(None, None, 2), slice(3, 0, -1))
    return [
        call("meshgrid", lambda v, w: paddle.meshgrid(v, w)[0], normals(3), normals(4, seed=5)),
        call("meshgrid second", lambda u, v, w: paddle.meshgrid(u, v, w)[1], normals(2), normals(3), normals(4)),
        call("set_value", _assigned((slice(None), slice(1, 3))), x, normals(3, 2, 5, seed=5)),
        call("set_value broadcast", _assigned((slice(0, 2), slice(1, 3))), x, normals(2, 5, seed=5)),
        call("set_value steps", _assigned(every_second), x, normals(2, 3, 5, seed=5)),
        call("set_value row", _assigned((slice(None), 1)), x, normals(3, 5, seed=5)),
        call("set_value all", _assigned(slice(None)), x, normals(4, 5, seed=5)),
        call("set_value number", lambda v: paddle.static.setitem(v, (slice(None), slice(-2, None)), 2.5), x),
        call("set_value element", lambda v: paddle.static.setitem(v, (1, 2, -1), -1.5), x),
        call("scatter_nd_add", paddle.scatter_nd_add, normals(4, 3), np.array([[2], [0], [2]]), normals(3, 3, seed=5)),
        call(
            "scatter_nd_add deep",
            paddle.scatter_nd_add,
            normals(4, 3, 2),
            np.array([[[2, 1], [0, 2]], [[2, 1], [3, 0]]]),
            normals(2, 2, 2, seed=5),
        ),
        call("accuracy", paddle.metric.accuracy, normals(8, 5), integers(5, 8, 1), k=2),
        call("linspace", lambda v: v + linspace(-1.0, 3.0, 5), x),
        call("linspace one", lambda v: v + linspace(2.0, 3.0, 1), x),
        call("isfinite_v2", paddle.isfinite, SPECIAL),
        call("isfinite_v2 whole", paddle.isfinite, integers(5, 2, 3)),
        call("isnan", raw("isnan", dtype="bool"), SPECIAL),
        call("isinf", raw("isinf", dtype="bool"), normals(2, 3)),
    ]


def distances() -> List[OpCall]:
    """Distances, losses of pairs and of signs, and norms by statistics that are given."""
    x, y = normals(3, 4), normals(3, 4, seed=5)
    label = integers(2, 4, 1).astype(np.float32)
    powers = {"0": 0.0, "1": 1.0, "2": 2.0, "3": 3.0, "inf": float("inf"), "-inf": float("-inf")}
    statistics = (np.full(4, 8.0, np.float32), normals(4), 8.0 + fractions(4))
    slots = "X BatchSize BatchSum BatchSquareSum"
    return [
        *(call(f"dist {name}", lambda v, w, p=p: paddle.dist(v, w, p), x, y) for name, p in powers.items()),
        call("dist broadcast", paddle.dist, x, normals(4, seed=5)),
        call("rank_loss", raw("rank_loss", "Left Right Label"), normals(4, 1), normals(4, 1, seed=5), label),
        call("hinge_loss", raw("hinge_loss", "Logits Labels", "Loss"), normals(4, 1), label),
        call("data_norm", raw("data_norm", slots, "Y Means Scales"), x, *statistics),
        call(
            "data_norm scaled",
            raw("data_norm", slots + " scale_w bias", "Y Means Scales", enable_scale_and_shift=True),
            x,
            *statistics,
            fractions(4),
            normals(4, seed=6),
        ),
    ]


def images() -> List[OpCall]:
    """Windows, points between pixels, and boxes."""
    image, body = normals(2, 3, 5, 6), normals(1, 2, 2, 3, 4)
    grid = (fractions(2, 4, 3, 2) * 2.5 - 1.25).astype(np.float32)
    predicted, sizes = normals(2, 2 * 8, 3, 2), np.array([[24, 16], [48, 30]], np.int32)

    def boxes(place: int, **more: Any) -> Build:
        return lambda v, s: paddle.vision.ops.yolo_box(v, s, [10, 13, 16, 30], 3, 0.4, 8, **more)[place]

    modes = itertools.product(("bilinear", "nearest"), ("zeros", "border"), (True, False))
    return [
        *(
            call(
                f"grid_sampler {' '.join(map(str, how))}", lambda v, g, how=how: F.grid_sample(v, g, *how), image, grid
            )
            for how in modes
        ),
        call("unfold", lambda v: F.unfold(v, [2, 3], 1, [1, 2], 1), image),
        call("unfold apart", lambda v: F.unfold(v, 2, [2, 1], [1, 0, 0, 2], [1, 2]), image),
        call("trilinear", lambda v: F.interpolate(v, [4, 5, 3], mode="trilinear", data_format="NCDHW"), body),
        call(
            "trilinear corners",
            lambda v: F.interpolate(v, [4, 5, 3], mode="trilinear", align_corners=True, data_format="NCDHW"),
            body,
        ),
        call("linear", lambda v: F.interpolate(v, [5], mode="linear", data_format="NCW"), normals(1, 2, 3)),
        call("yolo_box", boxes(0), predicted, sizes),
        call("yolo_box zoomed", boxes(0, scale_x_y=1.5, clip_bbox=False), predicted, sizes),
        call("yolo_box scores", boxes(1), predicted, sizes),
    ]


def _layer(mode: str, *, layers: int = 1, both: bool = False, place: int = 0, lengths: bool = False) -> Build:
    """A recurrent layer whose weights are fed; ``place`` 0 is what it makes, 1 and 2 the states in which it ends."""

    def build(source: Any, *others: Any) -> Any:
        rest = others[1:] if lengths else others
        block = paddle.static.default_main_program().current_block()
        states = 2 if mode == "LSTM" else 1
        hidden = rest[0].shape[-1]
        results = [block.create_var(dtype="float32") for _ in range(1 + states)]
        other = [block.create_var(dtype="uint8") for _ in range(2)]
        block.append_op(
            type="rnn",
            inputs={
                "Input": source,
                "PreState": list(rest[:states]),
                "WeightList": list(rest[states:]),
                **({"SequenceLength": others[0]} if lengths else {}),
            },
            outputs={"Out": results[0], "State": results[1:], "Reserve": other[0], "DropoutState": other[1]},
            attrs={
                "mode": mode,
                "num_layers": layers,
                "is_bidirec": both,
                "hidden_size": hidden,
                "input_size": source.shape[-1],
                "is_test": True,
            },
        )
        return results[place]

    return build


def _fed(mode: str, *, layers: int = 1, both: bool = False) -> Any:
    """A sequence of 3 steps of 2 samples, states and weights."""
    inputs, hidden, gates = 4, 3, {"LSTM": 4, "GRU": 3}.get(mode, 1)
    directions = 1 + both
    states = [normals(layers * directions, 2, hidden, seed=20 + n) for n in range(2 if mode == "LSTM" else 1)]
    weights, biases = [], []
    for cell in range(layers * directions):
        width = inputs if cell < directions else hidden * directions
        weights += [normals(gates * hidden, size, seed=30 + 2 * cell + n) for n, size in enumerate((width, hidden))]
        biases += [normals(gates * hidden, seed=60 + 2 * cell + n) for n in range(2)]
    return (normals(3, 2, inputs), *states, *weights, *biases)


def _with_lengths(mode: str) -> Any:
    source, *rest = _fed(mode)
    return (source, np.array([2, 3], np.int32), *rest)


def recurrent() -> List[OpCall]:
    """Every kind of cell, two layers, and both directions."""
    deep = {"layers": 2, "both": True}
    return [
        *(call(f"rnn {mode}", _layer(mode), *_fed(mode)) for mode in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")),
        call("rnn LSTM lengths", _layer("LSTM", lengths=True), *_with_lengths("LSTM")),
        call("rnn LSTM lengths states", _layer("LSTM", lengths=True, place=1), *_with_lengths("LSTM")),
        call("rnn GRU lengths", _layer("GRU", lengths=True), *_with_lengths("GRU")),
        call("rnn LSTM states", _layer("LSTM", place=2), *_fed("LSTM")),
        call("rnn LSTM deep", _layer("LSTM", **deep), *_fed("LSTM", **deep)),  # type: ignore[arg-type]
        call("rnn GRU deep states", _layer("GRU", place=1, **deep), *_fed("GRU", **deep)),  # type: ignore[arg-type]
    ]


def calls() -> List[OpCall]:
    """All of them."""
    return [*moves(), *contractions(), *diagonals(), *parts(), *distances(), *images(), *recurrent()]
