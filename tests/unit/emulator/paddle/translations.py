"""Calls of Paddle's API, and raw ops, for every row of the table that translates Paddle's ops."""

from __future__ import annotations

from typing import Dict, List

import numpy as np
import paddle
import paddle.nn.functional as F

from . import translations_of_parts
from .translation_use import Build, Use, above, numbers, raw, shares, truths, whole


def _unary() -> List[Use]:
    x, pair = numbers(3, 4), shares(3, 4)
    same = [
        "abs",
        "ceil",
        "cos",
        "erf",
        "exp",
        "floor",
        "sigmoid",
        "sign",
        "sin",
        "sinh",
        "cosh",
        "tan",
        "tanh",
        "square",
        "atan",
        "asinh",
        "round",
        "expm1",
    ]
    found = [Use(name, getattr(paddle, name, getattr(F, name, None)), (x,)) for name in same]
    found += [
        Use(name, getattr(paddle, name), (pair,))
        for name in ["acos", "asin", "atanh", "log", "log2", "log10", "log1p", "reciprocal", "rsqrt", "sqrt"]
    ]
    found += [Use("acosh", paddle.acosh, (above(1.5, 3, 4),))]
    layers: Dict[str, Build] = {
        "relu": F.relu,
        "gelu": F.gelu,
        "softsign": F.softsign,
        "swish": F.swish,
        "silu": F.silu,
        "mish": F.mish,
        "hard_swish": F.hardswish,
        "hard_sigmoid": F.hardsigmoid,
        "relu6": F.relu6,
        "elu": lambda v: F.elu(v, 0.3),
        "celu": lambda v: F.celu(v, 0.7),
        "selu": F.selu,
        "leaky_relu": lambda v: F.leaky_relu(v, 0.3),
        "thresholded_relu": lambda v: F.thresholded_relu(v, 0.4),
        "hard_shrink": lambda v: F.hardshrink(v, 0.4),
        "softshrink": lambda v: F.softshrink(v, 0.4),
        "softplus": F.softplus,
        "softplus beta": lambda v: F.softplus(v, 2),
        "tanh_shrink": F.tanhshrink,
        "logsigmoid": F.log_sigmoid,
        "hard_tanh": lambda v: F.hardtanh(v, -0.3, 0.4),
        "stanh": lambda v: paddle.stanh(v, 0.6, 1.5),
        "clip": lambda v: paddle.clip(v, -0.4, 0.5),
        "pow": lambda v: paddle.pow(v, 3.0),
        "scale": lambda v: paddle.scale(v, 2.0, 0.5),
        "scale before": lambda v: paddle.scale(v, 2.0, 0.5, bias_after_scale=False),
        "isnan": paddle.isnan,
        "isinf": paddle.isinf,
        "log_softmax": lambda v: F.log_softmax(v, 0),
        "softmax": lambda v: F.softmax(v, 1),
        "softmax first": lambda v: F.softmax(v, 0),
        "assign": paddle.assign,
        "swish beta": raw("swish", beta=1.5),
        "brelu": raw("brelu", t_min=-0.2, t_max=0.3),
        "share_data": raw("share_data"),
    }
    return found + [Use(name, build, (x,)) for name, build in layers.items()]


def _binary() -> List[Use]:
    x, y, positive = numbers(3, 4), numbers(3, 4, seed=9), shares(3, 4)
    a, b = whole(5, 3, 4), whole(5, 3, 4, seed=8)
    one, other = truths(3, 4), truths(3, 4, seed=7)
    found = [
        Use(name, getattr(paddle, name), (x, y))
        for name in ["add", "subtract", "multiply", "divide", "maximum", "minimum", "greater_than", "less_than"]
    ]
    found += [
        Use(f"{name} whole", getattr(paddle, name), (a, b))
        for name in ["add", "maximum", "minimum", "equal", "not_equal", "greater_equal", "less_equal"]
    ]
    found += [
        Use(name, getattr(paddle, name), (one, other))
        for name in ["logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"]
    ]
    return [
        *found,
        Use("logical_not", paddle.logical_not, (one,)),
        Use("bitwise_not", paddle.bitwise_not, (one,)),
        Use("elementwise_pow", paddle.pow, (positive, y)),
        Use("elementwise_mod", paddle.mod, (a, b + 1)),
        Use("elementwise_floordiv", paddle.floor_divide, (a, b + 1)),
        Use("broadcast last", paddle.add, (x, numbers(4))),
        Use("broadcast by axis", raw("elementwise_add", ("X", "Y"), axis=0), (x, numbers(3))),
        Use("where", paddle.where, (one, x, y)),
        Use("sum", lambda v, w: paddle.add_n([v, w, v]), (x, y)),
        Use("sum of one", lambda v: paddle.add_n([v]), (x,)),
        Use("sum whole", lambda v, w: paddle.add_n([v, w, w]), (a, b)),
        Use("increment", lambda v: paddle.increment(v, 2.0), (numbers(1),)),
        Use("prelu", lambda v, w: F.prelu(v, w), (numbers(2, 3, 2, 2), shares(3))),
        Use("dot", paddle.dot, (x, y)),
    ]


def _products() -> List[Use]:
    return [
        Use("matmul_v2", paddle.matmul, (numbers(2, 3, 4), numbers(4, 5))),
        Use("matmul_v2 turned", lambda v, w: paddle.matmul(v, w, True, True), (numbers(4, 3), numbers(5, 4))),
        Use(
            "matmul",
            raw("matmul", ("X", "Y"), transpose_X=False, transpose_Y=True, alpha=0.5),
            (numbers(3, 4), numbers(5, 4)),
        ),
        Use("mul", raw("mul", ("X", "Y"), x_num_col_dims=2, y_num_col_dims=1), (numbers(2, 3, 4), numbers(4, 5))),
        Use("mul flat", raw("mul", ("X", "Y"), x_num_col_dims=1, y_num_col_dims=1), (numbers(2, 3, 4), numbers(12, 5))),
        Use("bmm", paddle.bmm, (numbers(2, 3, 4), numbers(2, 4, 5))),
        Use("mv", paddle.mv, (numbers(3, 4), numbers(4))),
        Use(
            "addmm",
            lambda i, v, w: paddle.addmm(i, v, w, beta=0.5, alpha=2.0),
            (numbers(3, 5), numbers(3, 4), numbers(4, 5)),
        ),
        Use(
            "conv2d", lambda v, w: F.conv2d(v, w, padding=[1, 0], stride=2), (numbers(2, 2, 5, 6), numbers(3, 2, 3, 3))
        ),
        Use(
            "conv2d four pads",
            lambda v, w: F.conv2d(v, w, padding=[1, 0, 2, 1]),
            (numbers(2, 2, 5, 6), numbers(3, 2, 3, 3)),
        ),
        Use("conv2d same", lambda v, w: F.conv2d(v, w, padding="SAME"), (numbers(1, 2, 5, 6), numbers(3, 2, 3, 3))),
        Use(
            "depthwise_conv2d",
            lambda v, w: F.conv2d(v, w, groups=3, dilation=2),
            (numbers(1, 3, 7, 6), numbers(3, 1, 2, 2)),
        ),
        Use("conv3d", lambda v, w: F.conv3d(v, w), (numbers(1, 2, 3, 4, 4), numbers(2, 2, 2, 2, 2))),
        Use(
            "conv2d_transpose",
            lambda v, w: F.conv2d_transpose(v, w, stride=2),
            (numbers(1, 2, 3, 4), numbers(2, 3, 2, 2)),
        ),
        Use("max pool", lambda v: F.max_pool2d(v, 2, 2), (numbers(1, 2, 4, 6),)),
        Use("max pool padded", lambda v: F.max_pool2d(v, 3, 2, padding=1, ceil_mode=True), (numbers(1, 2, 6, 6),)),
        Use("average pool", lambda v: F.avg_pool2d(v, 3, 2, padding=1), (numbers(1, 2, 5, 7),)),
        Use(
            "average pool inclusive",
            lambda v: F.avg_pool2d(v, 3, 2, padding=1, exclusive=False),
            (numbers(1, 2, 5, 7),),
        ),
        Use("global average pool", lambda v: F.adaptive_avg_pool2d(v, 1), (numbers(2, 3, 4, 5),)),
        Use("adaptive pool", lambda v: F.adaptive_avg_pool2d(v, [2, 3]), (numbers(2, 3, 4, 6),)),
        Use("pool3d", lambda v: F.max_pool3d(v, 2, 2), (numbers(1, 2, 4, 4, 4),)),
        Use("max_pool2d_with_index", lambda v: F.max_pool2d(v, 2, 2, return_mask=True)[0], (numbers(1, 2, 4, 4),)),
        Use("layer_norm", lambda v, s, b: F.layer_norm(v, [4], s, b), (numbers(2, 3, 4), shares(4), numbers(4))),
        Use("layer_norm two", lambda v: F.layer_norm(v, [3, 4]), (numbers(2, 3, 4),)),
        Use(
            "group_norm",
            lambda v, s, b: raw(
                "group_norm", ("X", "Scale", "Bias"), ("Y", "Mean", "Variance"), groups=2, epsilon=1e-5
            )(v, s, b),
            (numbers(2, 4, 3, 3), shares(4), numbers(4)),
        ),
        Use("instance_norm", F.instance_norm, (numbers(2, 3, 4, 5),)),
        Use(
            "batch_norm",
            lambda v, m, s, w, b: F.batch_norm(v, m, s, w, b, training=False),
            (numbers(2, 3, 4, 5), numbers(3), shares(3), numbers(3, seed=5), numbers(3, seed=6)),
        ),
        Use("norm", raw("norm", ("X",), ("Out", "Norm"), axis=1, epsilon=1e-10), (numbers(3, 4),)),
        Use(
            "affine_channel",
            raw("affine_channel", ("X", "Scale", "Bias"), data_layout="NCHW"),
            (numbers(2, 3, 4, 5), shares(3), numbers(3)),
        ),
        Use("dropout off", lambda v: F.dropout(v, 0.4, training=False), (numbers(3, 4),)),
        Use(
            "dropout downgraded",
            lambda v: F.dropout(v, 0.4, training=False, mode="downscale_in_infer"),
            (numbers(3, 4),),
        ),
        Use("nearest", lambda v: F.interpolate(v, scale_factor=2, mode="nearest"), (numbers(1, 2, 3, 4),)),
        Use("bilinear", lambda v: F.interpolate(v, size=[5, 7], mode="bilinear"), (numbers(1, 2, 3, 4),)),
        Use(
            "bilinear corners",
            lambda v: F.interpolate(v, size=[5, 7], mode="bilinear", align_corners=True),
            (numbers(1, 2, 3, 4),),
        ),
        Use(
            "nearest_interp",
            raw("nearest_interp", ("X",), out_h=6, out_w=8, scale=0.0, align_corners=False, interp_method="nearest"),
            (numbers(1, 2, 3, 4),),
        ),
        Use(
            "bilinear_interp",
            raw("bilinear_interp", ("X",), out_h=5, out_w=7, scale=0.0, align_corners=True, interp_method="bilinear"),
            (numbers(1, 2, 3, 4),),
        ),
    ]


def _moves() -> List[Use]:
    x = numbers(2, 3, 4)
    return [
        Use("reshape2", lambda v: paddle.reshape(v, [0, -1]), (x,)),
        Use("reshape", raw("reshape", shape=[4, 6]), (x,)),
        Use("flatten2", raw("flatten2", made=("Out", "XShape"), axis=1), (x,)),
        Use("flatten_contiguous_range", lambda v: paddle.flatten(v, 1), (x,)),
        Use("flatten first", lambda v: paddle.flatten(v, 0, 1), (x,)),
        Use("transpose2", lambda v: paddle.transpose(v, [2, 0, 1]), (x,)),
        Use("transpose", raw("transpose", axis=[1, 0, 2]), (x,)),
        Use("squeeze2", lambda v: paddle.squeeze(v, [1]), (numbers(3, 1, 4),)),
        Use("squeeze nothing", lambda v: paddle.squeeze(v, [0]), (numbers(3, 1, 4),)),
        Use("unsqueeze2", lambda v: paddle.unsqueeze(v, [0, -1]), (x,)),
        Use("concat", lambda v, w: paddle.concat([v, w], -1), (x, numbers(2, 3, 2))),
        Use("stack", lambda v, w: paddle.stack([v, w], 1), (x, numbers(2, 3, 4, seed=5))),
        Use("unstack", lambda v: paddle.unstack(v, 1)[2], (x,)),
        Use("unbind", lambda v: paddle.unbind(v, 0)[1], (x,)),
        Use("split", lambda v: paddle.split(v, [1, -1], 2)[1], (x,)),
        Use("split evenly", lambda v: paddle.split(v, 2, 2)[1], (x,)),
        Use("slice", lambda v: v[:, 1:, 0], (x,)),
        Use("slice a number", lambda v: v[1, 2, 3], (x,)),
        Use("strided_slice", lambda v: paddle.strided_slice(v, [2], [3], [0], [-2]), (x,)),
        Use("expand_v2", lambda v: paddle.expand(v, [2, -1, 4]), (numbers(3, 1),)),
        Use("expand_as_v2", lambda v, w: paddle.expand_as(v, w), (numbers(1, 4), numbers(3, 4))),
        Use("tile", lambda v: paddle.tile(v, [2, 1, 3]), (numbers(3, 2),)),
        Use("expand", raw("expand", expand_times=[2, 3]), (numbers(3, 2),)),
        Use("flip", lambda v: paddle.flip(v, [0, 2]), (x,)),
        Use("roll", lambda v: paddle.roll(v, [1, -2], [0, 2]), (x,)),
        Use("gather", lambda v, i: paddle.gather(v, i, axis=0), (x, np.array([1, 0, 1]))),
        Use("index_select", lambda v, i: paddle.index_select(v, i, axis=1), (x, np.array([2, 0]))),
        Use("gather_nd", paddle.gather_nd, (x, np.array([[1, 2], [0, 1]]))),
        Use("take_along_axis", lambda v, i: paddle.take_along_axis(v, i, 1), (numbers(3, 4), whole(4, 3, 2))),
        Use(
            "scatter", lambda v, i, u: paddle.scatter(v, i, u), (numbers(4, 3), np.array([2, 0]), numbers(2, 3, seed=5))
        ),
        Use(
            "scatter-sum",
            lambda v, i, u: paddle.scatter(v, i, u, overwrite=False),
            (numbers(4, 3, 2), np.array([2, 0, 2]), numbers(3, 3, 2, seed=5)),
        ),
        Use("size", lambda v: paddle.cast(paddle.numel(v), "int32"), (x,)),
        Use("lookup_table_v2", lambda i, w: F.embedding(i, w), (whole(5, 2, 3), numbers(5, 4))),
        Use("lookup_table", raw("lookup_table", ("Ids", "W"), dtype="float32"), (whole(5, 3, 1), numbers(5, 4))),
        Use("one_hot_v2", lambda i: F.one_hot(i, 5), (whole(5, 2, 3),)),
        Use("top_k_v2", lambda v: paddle.topk(v, 2, axis=1)[0], (x,)),
        Use("top_k_v2 indices", lambda v: paddle.topk(v, 2, axis=1)[1], (x,)),
        Use("top_k", raw("top_k", made=("Out", "Indices"), k=2), (numbers(3, 5),)),
        Use("argsort", lambda v: paddle.argsort(v, 1, descending=True), (x,)),
        Use("arg_max", lambda v: paddle.argmax(v, 1, keepdim=True), (x,)),
        Use("arg_min", lambda v: paddle.argmin(v), (x,)),
        Use("arg_max int32", lambda v: paddle.argmax(v, 1, dtype="int32"), (x,)),
        Use("cast", lambda v: paddle.cast(v, "int32"), (numbers(3, 4) * 5,)),
        Use("pad3d", lambda v: F.pad(v, [1, 2, 0, 1], value=0.5), (numbers(1, 2, 3, 3),)),
        Use("pad3d reflect", lambda v: F.pad(v, [1, 2, 0, 1], mode="reflect"), (numbers(1, 2, 3, 4),)),
        Use("pad", raw("pad", paddings=[0, 1, 2, 0], pad_value=0.25), (numbers(2, 3),)),
        Use("pixel_shuffle", lambda v: F.pixel_shuffle(v, 2), (numbers(1, 8, 2, 3),)),
        Use("cumsum", lambda v: paddle.cumsum(v, 1), (x,)),
        Use("cumsum flat", lambda v: paddle.cumsum(v), (x,)),
        Use("tril_triu", lambda v: paddle.tril(v, -1), (numbers(3, 4),)),
        Use("triu", lambda v: paddle.triu(v, 1), (numbers(2, 3, 4),)),
        Use("shape", paddle.shape, (x,)),
        Use("fill_any_like", lambda v: paddle.full_like(v, 2.5), (x,)),
        Use("fill_zeros_like", raw("fill_zeros_like"), (x,)),
        Use("fill_constant", lambda v: v + paddle.full([3, 1], 2.5), (x,)),
        Use("fill_constant large", lambda v: v + paddle.full([300, 300], 2.5), (numbers(1),)),
        Use("assign_value", lambda v: v + paddle.assign(np.array([1, 2, 3, 4], np.float32)), (x,)),
        Use("range", raw("range", ("Start", "End", "Step")), tuple(np.array([n], np.float32) for n in (1, 8, 2))),
        Use("eye", lambda v: v + paddle.eye(3, 4), (x,)),
        Use(
            "fill_constant_batch_size_like",
            lambda v: v + raw("fill_constant_batch_size_like", ("Input",), shape=[7, 4], value=1.5, dtype="float32")(v),
            (numbers(3, 4),),
        ),
    ]


def _reductions() -> List[Use]:
    x = numbers(2, 3, 4)
    names = {
        "mean": "reduce_mean",
        "sum": "reduce_sum",
        "max": "reduce_max",
        "min": "reduce_min",
        "prod": "reduce_prod",
    }
    found = [
        Use(f"{op} {kind}", lambda v, n=name, k=kept: getattr(paddle, n)(v, axis=[0, 2], keepdim=k), (x,))
        for name, op in names.items()
        for kind, kept in (("kept", True), ("gone", False))
    ]
    return [
        *found,
        Use("mean of all", paddle.mean, (x,)),
        Use("mean op", raw("mean"), (x,)),
        Use("logsumexp", lambda v: paddle.logsumexp(v, 1), (x,)),
        Use("frobenius_norm", raw("frobenius_norm", dim=[0, 1], keep_dim=False, reduce_all=False), (numbers(3, 4),)),
        Use("p_norm 2", lambda v: paddle.norm(v, 2, 1), (x,)),
        Use("p_norm 1", lambda v: paddle.norm(v, 1, 1, keepdim=True), (x,)),
        Use("squared_l2_norm", raw("squared_l2_norm"), (x,)),
        Use("reduce_all", lambda v: paddle.all(v, 1), (truths(3, 4),)),
        Use("reduce_any", lambda v: paddle.any(v), (truths(3, 4),)),
    ]


def _losses() -> List[Use]:
    scores, labels = numbers(4, 5), whole(5, 4, 1)
    return [
        Use("softmax_with_cross_entropy", F.softmax_with_cross_entropy, (scores, labels)),
        Use(
            "softmax_with_cross_entropy soft",
            lambda v, w: F.softmax_with_cross_entropy(v, w, soft_label=True),
            (scores, shares(4, 5)),
        ),
        Use(
            "cross_entropy2",
            raw("cross_entropy2", ("X", "Label"), ("Y", "XShape", "MatchX"), ignore_index=-100),
            (shares(4, 5), labels),
        ),
        Use(
            "cross_entropy",
            raw("cross_entropy", ("X", "Label"), ("Y",), soft_label=False, ignore_index=-100),
            (shares(4, 5), labels),
        ),
        Use("nll_loss", lambda v, i: F.nll_loss(v, i), (scores, labels[:, 0])),
        Use("nll_loss sum", lambda v, i: F.nll_loss(v, i, reduction="sum"), (scores, labels[:, 0])),
        Use(
            "bce_loss",
            lambda v, w: F.binary_cross_entropy(v, w, reduction="none"),
            (shares(3, 4), shares(3, 4, seed=5)),
        ),
        Use("log_loss", F.log_loss, (shares(4, 1), shares(4, 1, seed=5))),
        Use(
            "sigmoid_cross_entropy_with_logits",
            lambda v, w: F.binary_cross_entropy_with_logits(v, w, reduction="none"),
            (numbers(3, 4), shares(3, 4)),
        ),
        Use(
            "huber_loss",
            lambda v, w: F.smooth_l1_loss(v, w, reduction="none", delta=0.7),
            (numbers(3, 4), numbers(3, 4, seed=5)),
        ),
        Use("kldiv_loss", lambda v, w: F.kl_div(v, w, reduction="batchmean"), (numbers(3, 4), shares(3, 4))),
        Use("kldiv_loss none", lambda v, w: F.kl_div(v, w, reduction="none"), (numbers(3, 4), shares(3, 4))),
        Use("kldiv_loss mean", lambda v, w: F.kl_div(v, w, reduction="mean"), (numbers(3, 4), shares(3, 4))),
        Use("label_smooth", lambda v: F.label_smooth(v, epsilon=0.2), (shares(3, 4),)),
        Use("identity_loss sum", lambda v: paddle.incubate.identity_loss(v, 0), (numbers(3, 4),)),
        Use("identity_loss mean", lambda v: paddle.incubate.identity_loss(v, 1), (numbers(3, 4),)),
        Use("identity_loss none", lambda v: paddle.incubate.identity_loss(v, 2), (numbers(3, 4),)),
    ]


def every() -> List[Use]:
    """All uses of ops whose values can be compared."""
    return [*_unary(), *_binary(), *_products(), *_moves(), *_reductions(), *_losses(), *translations_of_parts.every()]


NOT_COMPARED: Dict[str, str] = {
    "uniform_random": "random",
    "gaussian_random": "random",
    "truncated_gaussian_random": "random",
    "bernoulli": "random",
    "dropout": "random where it is on",
    "warpctc": "PopART's own loss",
    "print": "prints",
    **dict.fromkeys(
        ["flatten", "squeeze", "unsqueeze", "one_hot", "pad2d"], "of older programs: this wheel has no kernel"
    ),
    "checkpointoutput": "marks an output",
    "detach": "stops gradients",
    "depthwise_conv2d_transpose": "as conv2d_transpose",
    "conv3d_transpose": "as conv2d_transpose",
    "linear_interp": "as linear_interp_v2",
    "trilinear_interp": "as trilinear_interp_v2",
    "bicubic_interp_v2": "ONNX weighs other neighbours at the border",
}
"""Rows whose values are not compared, each with the reason."""
