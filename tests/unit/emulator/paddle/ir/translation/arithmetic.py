"""Calls of Paddle's API, and raw ops, that compute: functions of elements, products, norms, reductions and losses."""

from __future__ import annotations

from typing import Dict, List

import numpy as np
import paddle
import paddle.nn.functional as F

from .calls import Build, OpCall, call, fractions, integers, normals, raw, truths


def _named(names: str, *arrays: np.ndarray, suffix: str = "") -> List[OpCall]:
    """Calls of functions by their names in Paddle."""
    return [call(name + suffix, getattr(paddle, name, getattr(F, name, None)), *arrays) for name in names.split()]


def _unary() -> List[OpCall]:
    x = normals(3, 4)
    everywhere = "abs ceil cos erf exp floor sigmoid sign sin sinh cosh tan tanh square atan asinh round expm1"
    between_0_and_1 = "acos asin atanh log log2 log10 log1p reciprocal rsqrt sqrt"
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
    return [
        *_named(everywhere, x),
        *_named(between_0_and_1, fractions(3, 4)),
        call("acosh", paddle.acosh, 1.5 + fractions(3, 4)),
        *(call(name, build, x) for name, build in layers.items()),
    ]


def _binary() -> List[OpCall]:
    x, y, positive = normals(3, 4), normals(3, 4, seed=9), fractions(3, 4)
    a, b = integers(5, 3, 4), integers(5, 3, 4, seed=8)
    one, other = truths(3, 4), truths(3, 4, seed=7)
    return [
        *_named("add subtract multiply divide maximum minimum greater_than less_than", x, y),
        *_named("add maximum minimum equal not_equal greater_equal less_equal", a, b, suffix=" whole"),
        *_named("logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor", one, other),
        *_named("logical_not bitwise_not", one),
        call("elementwise_pow", paddle.pow, positive, y),
        call("elementwise_mod", paddle.mod, a, b + 1),
        call("elementwise_floordiv", paddle.floor_divide, a, b + 1),
        call("broadcast last", paddle.add, x, normals(4)),
        call("broadcast by axis", raw("elementwise_add", "X Y", axis=0), x, normals(3)),
        call("where", paddle.where, one, x, y),
        call("sum", lambda v, w: paddle.add_n([v, w, v]), x, y),
        call("sum of one", lambda v: paddle.add_n([v]), x),
        call("sum whole", lambda v, w: paddle.add_n([v, w, w]), a, b),
        call("increment", lambda v: paddle.increment(v, 2.0), normals(1)),
        call("prelu", F.prelu, normals(2, 3, 2, 2), fractions(3)),
        *_named("dot", x, y),
    ]


def _products() -> List[OpCall]:
    return [
        call("matmul_v2", paddle.matmul, normals(2, 3, 4), normals(4, 5)),
        call("matmul_v2 turned", lambda v, w: paddle.matmul(v, w, True, True), normals(4, 3), normals(5, 4)),
        call(
            "matmul", raw("matmul", "X Y", transpose_Y=True, transpose_X=False, alpha=0.5), normals(3, 4), normals(5, 4)
        ),
        call("mul", raw("mul", "X Y", x_num_col_dims=2, y_num_col_dims=1), normals(2, 3, 4), normals(4, 5)),
        call("mul flat", raw("mul", "X Y", x_num_col_dims=1, y_num_col_dims=1), normals(2, 3, 4), normals(12, 5)),
        call("bmm", paddle.bmm, normals(2, 3, 4), normals(2, 4, 5)),
        call("mv", paddle.mv, normals(3, 4), normals(4)),
        call("addmm", paddle.addmm, normals(3, 5), normals(3, 4), normals(4, 5), beta=0.5, alpha=2.0),
        call("conv2d", F.conv2d, normals(2, 2, 5, 6), normals(3, 2, 3, 3), padding=[1, 0], stride=2),
        call("conv2d four pads", F.conv2d, normals(2, 2, 5, 6), normals(3, 2, 3, 3), padding=[1, 0, 2, 1]),
        call("conv2d same", F.conv2d, normals(1, 2, 5, 6), normals(3, 2, 3, 3), padding="SAME"),
        call("depthwise_conv2d", F.conv2d, normals(1, 3, 7, 6), normals(3, 1, 2, 2), groups=3, dilation=2),
        call("conv3d", F.conv3d, normals(1, 2, 3, 4, 4), normals(2, 2, 2, 2, 2)),
        call("conv2d_transpose", F.conv2d_transpose, normals(1, 2, 3, 4), normals(2, 3, 2, 2), stride=2),
        call("max pool", lambda v: F.max_pool2d(v, 2, 2), normals(1, 2, 4, 6)),
        call("max pool padded", lambda v: F.max_pool2d(v, 3, 2, padding=1, ceil_mode=True), normals(1, 2, 6, 6)),
        call("average pool", lambda v: F.avg_pool2d(v, 3, 2, padding=1), normals(1, 2, 5, 7)),
        call(
            "average pool inclusive", lambda v: F.avg_pool2d(v, 3, 2, padding=1, exclusive=False), normals(1, 2, 5, 7)
        ),
        call("global average pool", lambda v: F.adaptive_avg_pool2d(v, 1), normals(2, 3, 4, 5)),
        call("adaptive pool", lambda v: F.adaptive_avg_pool2d(v, [2, 3]), normals(2, 3, 4, 6)),
        call("pool3d", lambda v: F.max_pool3d(v, 2, 2), normals(1, 2, 4, 4, 4)),
        call("max_pool2d_with_index", lambda v: F.max_pool2d(v, 2, 2, return_mask=True)[0], normals(1, 2, 4, 4)),
        call("layer_norm", lambda v, s, b: F.layer_norm(v, [4], s, b), normals(2, 3, 4), fractions(4), normals(4)),
        call("layer_norm two", lambda v: F.layer_norm(v, [3, 4]), normals(2, 3, 4)),
        call(
            "group_norm",
            lambda v, s, b: raw("group_norm", "X Scale Bias", "Y Mean Variance", groups=2, epsilon=1e-5)(v, s, b),
            normals(2, 4, 3, 3),
            fractions(4),
            normals(4),
        ),
        call("instance_norm", F.instance_norm, normals(2, 3, 4, 5)),
        call(
            "batch_norm",
            F.batch_norm,
            normals(2, 3, 4, 5),
            normals(3),
            fractions(3),
            normals(3, seed=5),
            normals(3, seed=6),
            training=False,
        ),
        call("norm", raw("norm", "X", "Out Norm", axis=1, epsilon=1e-10), normals(3, 4)),
        call(
            "affine_channel",
            raw("affine_channel", "X Scale Bias", data_layout="NCHW"),
            normals(2, 3, 4, 5),
            fractions(3),
            normals(3),
        ),
        call("dropout off", lambda v: F.dropout(v, 0.4, training=False), normals(3, 4)),
        call(
            "dropout downgraded", lambda v: F.dropout(v, 0.4, training=False, mode="downscale_in_infer"), normals(3, 4)
        ),
        call("nearest", F.interpolate, normals(1, 2, 3, 4), scale_factor=2, mode="nearest"),
        call("bilinear", F.interpolate, normals(1, 2, 3, 4), size=[5, 7], mode="bilinear"),
        call("bilinear corners", F.interpolate, normals(1, 2, 3, 4), size=[5, 7], mode="bilinear", align_corners=True),
        call(
            "nearest_interp",
            raw("nearest_interp", "X", out_h=6, out_w=8, scale=0.0, align_corners=False, interp_method="nearest"),
            normals(1, 2, 3, 4),
        ),
        call(
            "bilinear_interp",
            raw("bilinear_interp", "X", out_h=5, out_w=7, scale=0.0, align_corners=True, interp_method="bilinear"),
            normals(1, 2, 3, 4),
        ),
    ]


def _reductions() -> List[OpCall]:
    x = normals(2, 3, 4)
    return [
        *(
            call(f"reduce_{name} {kind}", getattr(paddle, name), x, axis=[0, 2], keepdim=kept)
            for name in ("mean", "sum", "max", "min", "prod")
            for kind, kept in (("kept", True), ("gone", False))
        ),
        call("mean of all", paddle.mean, x),
        call("mean op", raw("mean"), x),
        call("logsumexp", lambda v: paddle.logsumexp(v, 1), x),
        call("frobenius_norm", raw("frobenius_norm", dim=[0, 1], keep_dim=False, reduce_all=False), normals(3, 4)),
        call("p_norm 2", lambda v: paddle.norm(v, 2, 1), x),
        call("p_norm 1", lambda v: paddle.norm(v, 1, 1, keepdim=True), x),
        call("squared_l2_norm", raw("squared_l2_norm"), x),
        call("reduce_all", lambda v: paddle.all(v, 1), truths(3, 4)),
        call("reduce_any", paddle.any, truths(3, 4)),
    ]


def _losses() -> List[OpCall]:
    scores, labels = normals(4, 5), integers(5, 4, 1)
    return [
        call("softmax_with_cross_entropy", F.softmax_with_cross_entropy, scores, labels),
        call("softmax_with_cross_entropy soft", F.softmax_with_cross_entropy, scores, fractions(4, 5), soft_label=True),
        call(
            "cross_entropy2",
            raw("cross_entropy2", "X Label", "Y XShape MatchX", ignore_index=-100),
            fractions(4, 5),
            labels,
        ),
        call(
            "cross_entropy",
            raw("cross_entropy", "X Label", "Y", soft_label=False, ignore_index=-100),
            fractions(4, 5),
            labels,
        ),
        call("nll_loss", F.nll_loss, scores, labels[:, 0]),
        call("nll_loss sum", F.nll_loss, scores, labels[:, 0], reduction="sum"),
        call("bce_loss", F.binary_cross_entropy, fractions(3, 4), fractions(3, 4, seed=5), reduction="none"),
        call("log_loss", F.log_loss, fractions(4, 1), fractions(4, 1, seed=5)),
        call(
            "sigmoid_cross_entropy_with_logits",
            F.binary_cross_entropy_with_logits,
            normals(3, 4),
            fractions(3, 4),
            reduction="none",
        ),
        call("huber_loss", F.smooth_l1_loss, normals(3, 4), normals(3, 4, seed=5), reduction="none", delta=0.7),
        call("kldiv_loss", F.kl_div, normals(3, 4), fractions(3, 4), reduction="batchmean"),
        call("kldiv_loss none", F.kl_div, normals(3, 4), fractions(3, 4), reduction="none"),
        call("kldiv_loss mean", F.kl_div, normals(3, 4), fractions(3, 4), reduction="mean"),
        call("label_smooth", F.label_smooth, fractions(3, 4), epsilon=0.2),
        call("identity_loss sum", lambda v: paddle.incubate.identity_loss(v, 0), normals(3, 4)),
        call("identity_loss mean", lambda v: paddle.incubate.identity_loss(v, 1), normals(3, 4)),
        call("identity_loss none", lambda v: paddle.incubate.identity_loss(v, 2), normals(3, 4)),
    ]


def calls() -> List[OpCall]:
    """All of them."""
    return [*_unary(), *_binary(), *_products(), *_reductions(), *_losses()]
