"""``paddle.fluid.dygraph``: the basics of dynamic mode by their old names."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import paddle

from ipu_conformance.emulator.paddle.legacy import layers, table
from ipu_conformance.emulator.paddle.legacy.table import Old

guard = paddle.base.dygraph.guard
no_grad, Layer, Sequential, LayerList = paddle.no_grad, paddle.nn.Layer, paddle.nn.Sequential, paddle.nn.LayerList
BatchNorm = paddle.nn.BatchNorm
declarative = paddle.jit.to_static


def to_variable(value: Any, name: Optional[str] = None, zero_copy: Optional[bool] = None, dtype: Any = None) -> Any:
    """A tensor with an array's values; the name that Paddle 3 no longer has."""
    return paddle.to_tensor(value, dtype)


class _Activated(paddle.nn.Layer):
    """A layer with the activation behind it that its constructor named."""

    def __init__(self, layer: Any, act: Optional[str]) -> None:
        super().__init__()
        self._layer, self._act = layer, act

    def forward(self, *inputs: Any) -> Any:
        return table.activated(self._layer(*inputs), self._act)

    @property
    def weight(self) -> Any:
        return self._layer.weight

    @property
    def bias(self) -> Any:
        return self._layer.bias


def _linear(input_dim: int, output_dim: int, param_attr: Any, bias_attr: Any, act: Any, dtype: str) -> Any:
    return _Activated(paddle.nn.Linear(input_dim, output_dim, param_attr, bias_attr), act)


def _conv2d(
    num_channels: int, num_filters: int, filter_size: Any, stride: Any, padding: Any, dilation: Any, groups: Any,
    param_attr: Any, bias_attr: Any, act: Any, **_: Any,
) -> Any:  # fmt: skip
    return _Activated(
        paddle.nn.Conv2D(
            num_channels, num_filters, filter_size, stride, padding, dilation, groups or 1,
            weight_attr=param_attr, bias_attr=bias_attr,
        ),
        act,
    )  # fmt: skip


class _Pool(paddle.nn.Layer):
    """``fluid.layers.pool2d`` with the words that it was made with."""

    def __init__(self, words: Dict[str, Any]) -> None:
        super().__init__()
        self._words = words

    def forward(self, input: Any) -> Any:
        return layers.__getattr__("pool2d")(input, **self._words)


def _embedding(size: Any, is_sparse: bool, padding_idx: Any, param_attr: Any, **_: Any) -> Any:
    return paddle.nn.Embedding(size[0], size[1], padding_idx, is_sparse, param_attr)


def save_dygraph(state_dict: Any, model_path: str) -> None:
    """Save the weights of a layer or the state of an optimizer, each with the ending of its kind."""
    weights = any(isinstance(value, paddle.base.framework.EagerParamBase) for value in state_dict.values())
    paddle.save(state_dict, model_path + (".pdparams" if weights or not state_dict else ".pdopt"))


def load_dygraph(model_path: str, **_: Any) -> Tuple[Any, Any]:
    """The weights and the optimizer's state at a path, None for what is not there."""
    stem = model_path[: -len(".pdparams")] if model_path.endswith(".pdparams") else model_path
    found: List[Any] = []
    for ending in (".pdparams", ".pdopt"):
        try:
            found.append(paddle.load(stem + ending))
        except (ValueError, FileNotFoundError):
            found.append(None)
    if found == [None, None]:
        raise ValueError(f"There is neither {stem}.pdparams nor {stem}.pdopt; save one with fluid.save_dygraph")
    return found[0], found[1]


ROWS: Tuple[Old, ...] = (
    Old("Linear", 'input_dim, output_dim, param_attr=None, bias_attr=None, act=None, dtype="float32"', _linear),
    Old("Conv2D",
        "num_channels, num_filters, filter_size, stride=1, padding=0, dilation=1, groups=None, param_attr=None, "
        'bias_attr=None, use_cudnn=True, act=None, dtype="float32"', _conv2d),
    Old("Pool2D",
        'pool_size=-1, pool_type="max", pool_stride=1, pool_padding=0, global_pooling=False, use_cudnn=True, '
        'ceil_mode=False, exclusive=True, data_format="NCHW"', lambda **words: _Pool(words)),
    Old("Embedding",
        'size, is_sparse=False, is_distributed=False, padding_idx=None, param_attr=None, dtype="float32"', _embedding),
)  # fmt: skip
"""Layers whose constructors had other parameters."""

_FUNCTIONS = table.functions(ROWS)


def __getattr__(name: str) -> Any:
    return _FUNCTIONS[name] if name in _FUNCTIONS else table.missing("paddle.fluid.dygraph", name)
