"""Witnesses of embedding, dropout with a given mask, and casts."""

from __future__ import annotations

from typing import Any, Optional

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, Unsupported


@TORCH.row("embedding")
def _torch_embedding(
    torch: Any, ids: Any, weight: Any, padding_idx: Optional[int] = None, padding: str = "zero"
) -> Any:
    if padding_idx is not None and padding != "row":
        raise Unsupported("torch looks the padding row up like any other")
    return torch.nn.functional.embedding(ids, weight, padding_idx)


@TENSORFLOW.row("embedding")
def _tf_embedding(tf: Any, ids: Any, weight: Any, padding_idx: Optional[int] = None) -> Any:
    if padding_idx is not None:
        raise Unsupported("TensorFlow has no padding row")
    return tf.nn.embedding_lookup(weight, ids)


@PADDLE.row("embedding")
def _paddle_embedding(
    paddle: Any, ids: Any, weight: Any, padding_idx: Optional[int] = None, padding: str = "zero"
) -> Any:
    if padding != "zero":
        raise Unsupported("Paddle's padding row gives zeros")
    return paddle.nn.functional.embedding(ids, weight, padding_idx)


def _masked(x: Any, kept: Any, rate: float, mode: str, training: bool) -> Any:
    if not training:
        return x * (1 - rate) if mode == "downscale_in_infer" else x * 1
    return x * kept / (1 - rate) if mode == "upscale_in_train" else x * kept


TORCH.add({"dropout": lambda torch, x, mask, **how: _masked(x, mask.to(x.dtype), **how)})
TENSORFLOW.add({"dropout": lambda tf, x, mask, **how: _masked(x, tf.cast(mask, x.dtype), **how)})
PADDLE.add({"dropout": lambda paddle, x, mask, **how: _masked(x, mask.astype(x.dtype), **how)})


@TORCH.row("cast", "cast_narrow", "cast_integer")
def _torch_cast(torch: Any, x: Any, dtype: str) -> Any:
    return x.to(getattr(torch, dtype))


@TENSORFLOW.row("cast", "cast_narrow", "cast_integer")
def _tf_cast(tf: Any, x: Any, dtype: str) -> Any:
    return tf.cast(x, dtype)


@PADDLE.row("cast", "cast_narrow", "cast_integer")
def _paddle_cast(paddle: Any, x: Any, dtype: str) -> Any:
    if dtype == "float16":
        raise Unsupported("Paddle truncates to float16 on a CPU where the others round")
    return paddle.cast(x, dtype)
