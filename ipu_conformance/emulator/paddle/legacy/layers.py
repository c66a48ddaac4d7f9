"""``paddle.fluid.layers``: layers and ops by their old names, for Programs and for dynamic mode."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple, Union

import paddle
from paddle.base.layer_helper import LayerHelper

from ipu_conformance.emulator.paddle.legacy import decays, table
from ipu_conformance.emulator.paddle.legacy.table import Old

Numbers = Union[int, Sequence[int]]


def _data(name: str, shape: Sequence[int], append_batch_size: bool, dtype: str, stop_gradient: bool, **_: Any) -> Any:
    """A feed; unless a dimension is open already, the batch comes in front."""
    open_already = any(length is None or length < 0 for length in shape)
    whole = [-1, *shape] if append_batch_size and not open_already else list(shape)
    variable = paddle.static.data(name, whole, dtype)
    variable.stop_gradient = stop_gradient
    return variable


def _op(kind: str, inputs: Dict[str, Any], slot: str, dtype: Any, more: Sequence[str] = (), **attributes: Any) -> Any:
    """The result of an op that Paddle 2 has no function for."""
    helper = LayerHelper(kind)
    made = {name: helper.create_variable_for_type_inference(dtype) for name in (slot, *more)}
    helper.append_op(
        type=kind, inputs=inputs, outputs={name: [value] for name, value in made.items()}, attrs=attributes
    )
    return made[slot]


def _cross_entropy(input: Any, label: Any, soft_label: bool, ignore_index: int) -> Any:
    """The loss of probabilities, one for each sample."""
    if soft_label:
        return paddle.scale(paddle.sum(paddle.multiply(label, paddle.log(input)), -1, keepdim=True), -1.0)
    more = ("XShape", "MatchX")
    return _op("cross_entropy2", {"X": input, "Label": label}, "Y", input.dtype, more, ignore_index=ignore_index)


def _pool2d(
    input: Any, pool_size: Numbers, pool_type: str, pool_stride: Numbers, pool_padding: Any, global_pooling: bool,
    ceil_mode: bool, exclusive: bool, data_format: str,
) -> Any:  # fmt: skip
    if pool_type not in ("max", "avg"):
        raise ValueError(f"pool2d has the pool_type {pool_type!r}; it may be 'max' or 'avg'")
    if global_pooling:
        rows, columns = (2, 3) if data_format == "NCHW" else (1, 2)
        pool_size, pool_stride, pool_padding = [input.shape[rows], input.shape[columns]], 1, 0
    common = {"kernel_size": pool_size, "stride": pool_stride, "padding": pool_padding, "ceil_mode": ceil_mode}
    if pool_type == "max":
        return paddle.nn.functional.max_pool2d(input, data_format=data_format, **common)
    return paddle.nn.functional.avg_pool2d(input, exclusive=exclusive, data_format=data_format, **common)


def _dropout(x: Any, dropout_prob: float, is_test: Any, seed: Any, dropout_implementation: str, **_: Any) -> Any:
    if seed is not None and x.block.program.random_seed == 0:
        x.block.program.random_seed = seed
    return paddle.nn.functional.dropout(x, dropout_prob, training=not is_test, mode=dropout_implementation)


def _embedding(input: Any, **words: Any) -> Any:
    """The old lookup drops the last dimension of its indices, of length 1."""
    if tuple(input.shape)[-1:] == (1,):
        input = paddle.squeeze(input, -1)
    return paddle.static.nn.embedding(input, **words)


def _reshape(x: Any, shape: Sequence[int], actual_shape: Any, act: Any, **_: Any) -> Any:
    return table.activated(paddle.reshape(x, shape if actual_shape is None else actual_shape), act)


def _mul(x: Any, y: Any, x_num_col_dims: int, y_num_col_dims: int, **_: Any) -> Any:
    dims: Dict[str, Any] = {"x_num_col_dims": x_num_col_dims, "y_num_col_dims": y_num_col_dims}
    return _op("mul", {"X": x, "Y": y}, "Out", x.dtype, **dims)


def _matmul(x: Any, y: Any, transpose_x: bool, transpose_y: bool, alpha: float, **_: Any) -> Any:
    product = paddle.matmul(x, y, transpose_x, transpose_y)
    return product if alpha == 1.0 else paddle.scale(product, alpha)


def _elementwise(kind: str) -> table.Work:
    """A binary op whose second operand's dimensions begin at an axis of the first."""

    def elementwise(x: Any, y: Any, axis: int, act: Any, **_: Any) -> Any:
        return table.activated(_op(f"elementwise_{kind}", {"X": x, "Y": y}, "Out", x.dtype, axis=axis), act)

    return elementwise


def _reduced(path: str) -> table.Work:
    def reduce(input: Any, dim: Any, keep_dim: bool, **_: Any) -> Any:
        return table.found(path)(input, dim, keepdim=keep_dim)

    return reduce


def _one_hot(input: Any, depth: int, **_: Any) -> Any:
    if tuple(input.shape)[-1:] == (1,):
        input = paddle.squeeze(input, -1)
    return paddle.nn.functional.one_hot(input, depth)


def _flatten(x: Any, axis: int, **_: Any) -> Any:
    """A matrix: the dimensions before the axis, and those from it on."""
    return _op("flatten2", {"X": x}, "Out", x.dtype, ("XShape",), axis=axis)


def _relu6(x: Any, threshold: float, **_: Any) -> Any:
    return _op("relu6", {"X": x}, "Out", x.dtype, threshold=threshold)


def _expand(x: Any, expand_times: Any, **_: Any) -> Any:
    """A tensor several times along each dimension, by numbers or by a tensor of them."""
    if isinstance(expand_times, (list, tuple)):
        return paddle.tile(x, expand_times)
    return _op("expand", {"X": x, "ExpandTimes": expand_times}, "Out", x.dtype)


def _sums(input: List[Any], out: Any) -> Any:
    total = paddle.add_n(input)
    return total if out is None else paddle.assign(total, out)


def _sigmoid_cross_entropy(x: Any, label: Any, ignore_index: int, normalize: bool, **_: Any) -> Any:
    """The loss of every element; those of one label may count for nothing, and all be divided by how many count."""
    kind, inputs = "sigmoid_cross_entropy_with_logits", {"X": x, "Label": label}
    return _op(kind, inputs, "Out", x.dtype, ignore_index=ignore_index, normalize=normalize)


def _huber(input: Any, label: Any, delta: float) -> Any:
    return _op("huber_loss", {"X": input, "Y": label}, "Out", input.dtype, ("Residual",), delta=delta)


def _rank_loss(label: Any, left: Any, right: Any, **_: Any) -> Any:
    return _op("rank_loss", {"Label": label, "Left": left, "Right": right}, "Out", left.dtype)


def _brelu(x: Any, t_min: float, t_max: float, **_: Any) -> Any:
    return _op("brelu", {"X": x}, "Out", x.dtype, t_min=t_min, t_max=t_max)


def _cumsum(x: Any, axis: Any, exclusive: Any, reverse: Any) -> Any:
    how: Dict[str, Any] = {"axis": -1 if axis is None else axis, "exclusive": bool(exclusive), "reverse": bool(reverse)}
    return _op("cumsum", {"X": x}, "Out", x.dtype, **how)


def _affine_channel(x: Any, scale: Any, bias: Any, data_layout: str, act: Any, **_: Any) -> Any:
    inputs = {"X": x, "Scale": scale, "Bias": bias}
    return table.activated(_op("affine_channel", inputs, "Out", x.dtype, data_layout=data_layout), act)


def _l2_normalize(x: Any, axis: int, epsilon: float, **_: Any) -> Any:
    return paddle.nn.functional.normalize(x, axis=axis, epsilon=epsilon)


def _resized(mode: str) -> table.Work:
    """A picture in another size, or larger by a factor; corners may be aligned to the nearest pixel, too."""

    def resize(input: Any, out_shape: Any, scale: Any, align_corners: bool, align_mode: int = 1, **_: Any) -> Any:
        if (out_shape is None) == (scale is None):
            raise ValueError(f"resize_{mode} has {out_shape=} and {scale=}; give one of them")
        height, width = (-1, -1) if out_shape is None else out_shape
        how: Dict[str, Any] = {"out_h": height, "out_w": width, "interp_method": mode, "data_layout": "NCHW"}
        how.update(
            align_corners=align_corners, align_mode=align_mode, scale=[] if scale is None else [float(scale)] * 2
        )
        return _op(f"{mode}_interp_v2", {"X": input}, "Out", input.dtype, **how)

    return resize


def _compared(kind: str) -> table.Work:
    def compare(x: Any, y: Any, cond: Any, **_: Any) -> Any:
        made = table.found(kind)(x, y)
        return made if cond is None else paddle.assign(made, cond)

    return compare


def _logical(kind: str) -> table.Work:
    def logical(out: Any, name: Any, **operands: Any) -> Any:
        made = table.found(kind)(**operands)
        return made if out is None else paddle.assign(made, out)

    return logical


def _argsort(input: Any, axis: int, descending: bool, name: Any) -> Any:
    """The sorted values, and where each stood."""
    return paddle.sort(input, axis, descending), paddle.argsort(input, axis, descending)


def _uniform(shape: Any, dtype: str, min: float, max: float, seed: int) -> Any:
    return paddle.uniform(shape, dtype, min, max, seed)


def _gaussian(shape: Any, mean: float, std: float, seed: int, dtype: str) -> Any:
    return paddle.tensor.random.gaussian(shape, mean, std, seed, dtype)


def _kldiv(x: Any, target: Any, reduction: str, **_: Any) -> Any:
    return paddle.nn.functional.kl_div(x, target, reduction)


def _pad2d(input: Any, paddings: Sequence[int], mode: str, pad_value: float, data_format: str, **_: Any) -> Any:
    """The paddings are top, bottom, left and right; the edge is repeated in the mode of that name."""
    top, bottom, left, right = paddings
    now = "replicate" if mode == "edge" else mode
    return paddle.nn.functional.pad(input, [left, right, top, bottom], now, pad_value, data_format)


def _pad(x: Any, paddings: Sequence[int], pad_value: float, **_: Any) -> Any:
    return _op("pad", {"X": x}, "Out", x.dtype, paddings=list(paddings), pad_value=float(pad_value))


def _swish(x: Any, beta: float, **_: Any) -> Any:
    return _op("swish", {"X": x}, "Out", x.dtype, beta=beta)


def _like(value: float) -> table.Work:
    def like(x: Any, out: Any) -> Any:
        made = paddle.full_like(x, value)
        return made if out is None else paddle.assign(made, out)

    return like


def _filled(value: float) -> table.Work:
    def filled(shape: Sequence[int], dtype: str, **_: Any) -> Any:
        return paddle.full(shape, value, dtype)

    return filled


def _fill_constant(shape: Sequence[int], dtype: str, value: float, out: Any, **_: Any) -> Any:
    made = paddle.full(shape, value, dtype)
    return made if out is None else paddle.assign(made, out)


_X, _NAME = "x, name=None", ("name",)
_BINARY = "x, y, axis=-1, act=None, name=None"
_REDUCE = "input, dim=None, keep_dim=False, name=None"
_CONV = (
    "input, num_filters, filter_size, stride=1, padding=0, dilation=1, groups=None, param_attr=None, bias_attr=None, "
    'use_cudnn=True, act=None, name=None, data_format="NCHW"'
)
_ACT_KEPT = {"act": "act"}
_UNARY: Tuple[str, ...] = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "log", "reciprocal", "round", "rsqrt",
    "sign", "sin", "sinh", "sqrt", "square", "tanh",
)  # fmt: skip
_ACTIVATIONS: Tuple[str, ...] = ("relu", "sigmoid", "softplus", "softsign", "tanh_shrink")

ROWS: Tuple[Old, ...] = (
    Old("data", 'name, shape, append_batch_size=True, dtype="float32", lod_level=0, type=None, stop_gradient=True',
        _data),
    Old("fc", "input, size, num_flatten_dims=1, param_attr=None, bias_attr=None, act=None, name=None", "static.nn.fc",
        {"input": "x", "param_attr": "weight_attr", "act": "activation"}),
    Old("conv2d", _CONV, "static.nn.conv2d", _ACT_KEPT),
    Old("conv3d", _CONV.replace("NCHW", "NCDHW"), "static.nn.conv3d", _ACT_KEPT),
    Old("conv2d_transpose",
        "input, num_filters, output_size=None, filter_size=None, padding=0, stride=1, dilation=1, groups=None, "
        'param_attr=None, bias_attr=None, use_cudnn=True, act=None, name=None, data_format="NCHW"',
        "static.nn.conv2d_transpose", _ACT_KEPT),
    Old("pool2d",
        'input, pool_size=-1, pool_type="max", pool_stride=1, pool_padding=0, global_pooling=False, use_cudnn=True, '
        'ceil_mode=False, name=None, exclusive=True, data_format="NCHW"', _pool2d, dropped=("use_cudnn", "name")),
    Old("batch_norm",
        "input, act=None, is_test=False, momentum=0.9, epsilon=1e-05, param_attr=None, bias_attr=None, "
        'data_layout="NCHW", in_place=False, name=None, moving_mean_name=None, moving_variance_name=None, '
        "do_model_average_for_mean_and_var=True, use_global_stats=False", "static.nn.batch_norm", _ACT_KEPT),
    Old("layer_norm",
        "input, scale=True, shift=True, begin_norm_axis=1, epsilon=1e-05, param_attr=None, bias_attr=None, act=None, "
        "name=None", "static.nn.layer_norm", _ACT_KEPT),
    Old("group_norm",
        'input, groups, epsilon=1e-05, param_attr=None, bias_attr=None, act=None, data_layout="NCHW", name=None',
        "static.nn.group_norm", _ACT_KEPT),
    Old("instance_norm", "input, epsilon=1e-05, param_attr=None, bias_attr=None, name=None", "static.nn.instance_norm"),
    Old("embedding",
        "input, size, is_sparse=False, is_distributed=False, padding_idx=None, param_attr=None, dtype='float32'",
        _embedding),
    Old("dropout",
        'x, dropout_prob, is_test=None, seed=None, name=None, dropout_implementation="downgrade_in_infer"', _dropout),
    Old("softmax", "input, use_cudnn=False, name=None, axis=-1", "nn.functional.softmax", {"input": "x"},
        ("use_cudnn",)),
    Old("log_softmax", "input, axis=None, dtype=None, name=None", "nn.functional.log_softmax", {"input": "x"}),
    Old("cross_entropy", "input, label, soft_label=False, ignore_index=-100", _cross_entropy),
    Old("softmax_with_cross_entropy",
        "logits, label, soft_label=False, ignore_index=-100, numeric_stable_mode=True, return_softmax=False, axis=-1",
        "nn.functional.softmax_with_cross_entropy"),
    Old("sigmoid_cross_entropy_with_logits", "x, label, ignore_index=-100, name=None, normalize=False",
        _sigmoid_cross_entropy),
    Old("huber_loss", "input, label, delta", _huber),
    Old("rank_loss", "label, left, right, name=None", _rank_loss),
    Old("kldiv_loss", 'x, target, reduction="mean", name=None', _kldiv),
    Old("log_loss", "input, label, epsilon=0.0001, name=None", "nn.functional.log_loss"),
    Old("label_smooth", 'label, prior_dist=None, epsilon=0.1, dtype="float32", name=None', "nn.functional.label_smooth",
        dropped=("dtype",)),
    Old("square_error_cost", "input, label", "nn.functional.square_error_cost"),
    Old("mean", _X, "mean"),
    Old("accuracy", "input, label, k=1, correct=None, total=None", "static.accuracy"),
    Old("auc", 'input, label, curve="ROC", num_thresholds=4095, topk=1, slide_steps=1', "static.auc"),
    Old("reshape", "x, shape, actual_shape=None, act=None, inplace=False, name=None", _reshape),
    Old("flatten", "x, axis=1, name=None", _flatten),
    Old("shape", "input", "shape"),
    Old("reverse", "x, axis", "flip"),
    Old("pad", "x, paddings, pad_value=0.0, name=None", _pad),
    Old("pad2d", "input, paddings=[0, 0, 0, 0], mode='constant', pad_value=0.0, data_format='NCHW', name=None", _pad2d),
    Old("resize_bilinear",
        "input, out_shape=None, scale=None, name=None, actual_shape=None, align_corners=True, align_mode=1",
        _resized("bilinear")),
    Old("resize_nearest", "input, out_shape=None, scale=None, name=None, actual_shape=None, align_corners=True",
        _resized("nearest")),
    Old("concat", "input, axis=0, name=None", "concat", {"input": "x"}),
    Old("split", "input, num_or_sections, dim=-1, name=None", "split", {"input": "x", "dim": "axis"}),
    Old("stack", "x, axis=0, name=None", "stack"),
    Old("unstack", "x, axis=0, num=None", "unstack"),
    Old("squeeze", "input, axes, name=None", "squeeze", {"input": "x", "axes": "axis"}),
    Old("unsqueeze", "input, axes, name=None", "unsqueeze", {"input": "x", "axes": "axis"}),
    Old("transpose", "x, perm, name=None", "transpose"),
    Old("expand", "x, expand_times, name=None", _expand),
    Old("slice", "input, axes, starts, ends", "slice"),
    Old("gather", "input, index, overwrite=True", "gather", {"input": "x"}, ("overwrite",)),
    Old("cast", "x, dtype", "cast"),
    Old("assign", "input, output=None", "assign", {"input": "x"}),
    Old("sums", "input, out=None", _sums),
    Old("sum", "x", "add_n", {"x": "inputs"}),
    Old("argmax", "x, axis=0", "argmax"),
    Old("argmin", "x, axis=0", "argmin"),
    Old("argsort", "input, axis=-1, descending=False, name=None", _argsort),
    Old("cumsum", "x, axis=None, exclusive=None, reverse=None", _cumsum),
    Old("l2_normalize", "x, axis, epsilon=1e-12, name=None", _l2_normalize),
    Old("affine_channel", 'x, scale=None, bias=None, data_layout="NCHW", name=None, act=None', _affine_channel),
    Old("topk", "input, k, name=None", "topk", {"input": "x"}),
    Old("one_hot", "input, depth, allow_out_of_range=False", _one_hot),
    Old("where", "condition", "nonzero", {"condition": "x"}),
    Old("clip", "x, min, max, name=None", "clip"),
    Old("pow", "x, factor=1.0, name=None", "pow", {"factor": "y"}),
    Old("scale", "x, scale=1.0, bias=0.0, bias_after_scale=True, act=None, name=None", "scale", _ACT_KEPT),
    Old("mul", "x, y, x_num_col_dims=1, y_num_col_dims=1, name=None", _mul),
    Old("matmul", "x, y, transpose_x=False, transpose_y=False, alpha=1.0, name=None", _matmul),
    Old("leaky_relu", "x, alpha=0.02, name=None", "nn.functional.leaky_relu", {"alpha": "negative_slope"}),
    Old("elu", "x, alpha=1.0, name=None", "nn.functional.elu"),
    Old("relu6", "x, threshold=6.0, name=None", _relu6),
    Old("gelu", "x, approximate=False", "nn.functional.gelu"),
    Old("brelu", "x, t_min=0.0, t_max=24.0, name=None", _brelu),
    Old("hard_sigmoid", "x, slope=0.2, offset=0.5, name=None", "nn.functional.hardsigmoid"),
    Old("swish", "x, beta=1.0, name=None", _swish),
    Old("logsigmoid", _X, "nn.functional.log_sigmoid"),
    Old("prelu", "x, mode, param_attr=None, name=None", "static.nn.prelu"),
    Old("zeros", "shape, dtype, force_cpu=False", _filled(0)),
    Old("ones", "shape, dtype, force_cpu=False", _filled(1)),
    Old("zeros_like", "x, out=None", _like(0)),
    Old("ones_like", "x, out=None", _like(1)),
    Old("uniform_random", 'shape, dtype="float32", min=-1.0, max=1.0, seed=0', _uniform),
    Old("gaussian_random", 'shape, mean=0.0, std=1.0, seed=0, dtype="float32"', _gaussian),
    Old("Print",
        "input, first_n=-1, message=None, summarize=-1, print_tensor_name=True, print_tensor_type=True, "
        'print_tensor_shape=True, print_tensor_lod=True, print_phase="both"', "static.Print"),
    Old("fill_constant", "shape, dtype, value, force_cpu=False, out=None, name=None", _fill_constant),
    Old("create_parameter",
        "shape, dtype, name=None, attr=None, is_bias=False, default_initializer=None", "create_parameter"),
    Old("create_global_var", "shape, value, dtype, persistable=False, force_cpu=False, name=None",
        "static.create_global_var"),
    *(Old(f"elementwise_{kind}", _BINARY, _elementwise(kind))
      for kind in ("add", "sub", "mul", "div", "max", "min", "pow", "mod", "floordiv")),
    Old("less_than", "x, y, force_cpu=None, cond=None", _compared("less_than")),
    *(Old(kind, "x, y, cond=None", _compared(kind))
      for kind in ("less_equal", "greater_than", "greater_equal", "equal", "not_equal")),
    *(Old(f"logical_{kind}", "x, y, out=None, name=None", _logical(f"logical_{kind}"))
      for kind in ("and", "or", "xor")),
    Old("logical_not", "x, out=None, name=None", _logical("logical_not")),
    *(Old(f"reduce_{kind}", _REDUCE, _reduced(kind)) for kind in ("sum", "mean", "max", "min", "prod", "all", "any")),
    *(Old(kind, _X, kind) for kind in _UNARY),
    *(Old(kind, _X, f"nn.functional.{kind.replace('_', '')}") for kind in _ACTIVATIONS),
)  # fmt: skip
"""The layers and ops that Paddle 2 still has, in whatever words."""

_FUNCTIONS = table.functions((*ROWS, *decays.ROWS))
_FUNCTIONS["learning_rate_scheduler"] = decays  # type: ignore[assignment]


def __getattr__(name: str) -> Any:
    return _FUNCTIONS[name] if name in _FUNCTIONS else table.missing("paddle.fluid.layers", name)


def __dir__() -> List[str]:
    return sorted(_FUNCTIONS)
