"""Operations with float16 and float32 operands: the device computes in float32, or in the type that it writes into.

torch promotes the operands of element-wise operations by itself. Products it refuses, and the vendor upcasts; what
writes into a tensor takes on the type of that tensor.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import torch
from torch.utils import _pytree as pytree

PRODUCTS = frozenset((
    "linear", "bilinear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "vdot", "addmm", "addmv",
    "addbmm", "baddbmm", "einsum", "tensordot", "chain_matmul", "multi_dot", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention",
    "multi_head_attention_forward", "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
    "rnn_relu_cell",
))  # fmt: skip
"""Functions whose operands have one type; they are upcast to float32."""

NORMALIZATIONS = frozenset(["batch_norm", "layer_norm", "group_norm", "instance_norm"])
"""Functions that compute in the type of their input, whatever their weights have, unless that is the wider one."""

WRITES = frozenset((
    "__setitem__", "index_put_", "scatter_", "scatter_add_", "index_add_", "index_copy_", "masked_scatter_",
    "addmm_", "baddbmm_", "addmv_",
))  # fmt: skip
"""Functions that write into their first operand, in its type."""


def aligned(
    function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """The arguments of a call in the types that the device computes with."""
    name = getattr(function, "__name__", "")
    if name in PRODUCTS:
        return _cast((args, kwargs), torch.float32) if _is_mixed((args, kwargs)) else (args, kwargs)
    if name in NORMALIZATIONS and args and _type(args[0]) == torch.float32:
        return _cast((args, kwargs), torch.float32)
    if name in WRITES and args and _type(args[0]) in _FLOATS:
        return _cast((args, kwargs), _type(args[0]))
    return args, kwargs


_FLOATS = (torch.float16, torch.float32)


def _type(value: Any) -> Any:
    return value.dtype if isinstance(value, torch.Tensor) else None


def _is_mixed(tree: Any) -> bool:
    return {_type(leaf) for leaf in pytree.tree_leaves(tree)}.issuperset(_FLOATS)


def _cast(tree: Any, dtype: torch.dtype) -> Any:
    return pytree.tree_map(lambda leaf: leaf.to(dtype) if _type(leaf) in _FLOATS else leaf, tree)
