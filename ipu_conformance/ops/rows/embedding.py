"""Embedding, dropout with a given mask, and casts."""

from __future__ import annotations

from ipu_conformance.ops.row import TABLE, Row, call, refusing


def _embedding(module, ids, weight, padding_idx=None, padding="zero"):
    return module.nn.functional.embedding(ids, weight, padding_idx)


def _masked(x, kept, rate, mode, training):
    if not training:
        return x * (1 - rate) if mode == "downscale_in_infer" else x * 1
    return x * kept / (1 - rate) if mode == "upscale_in_train" else x * kept


def _torch_cast(torch, x, dtype):
    return x.to(getattr(torch, dtype))


TABLE.add(
    Row(
        "embedding",
        torch=refusing(
            _embedding,
            lambda *_, padding_idx=None, padding="zero": padding_idx is not None and padding != "row",
            "torch looks the padding row up like any other",
        ),
        tensorflow=refusing(
            lambda tf, ids, weight, **_: tf.nn.embedding_lookup(weight, ids),
            lambda *_, padding_idx=None, **__: padding_idx is not None,
            "TensorFlow has no padding row",
        ),
        paddle=refusing(
            _embedding, lambda *_, padding="zero", **__: padding != "zero", "Paddle's padding row gives zeros"
        ),
    ),
    Row(
        "dropout",
        torch=lambda torch, x, mask, **how: _masked(x, mask.to(x.dtype), **how),
        tensorflow=lambda tf, x, mask, **how: _masked(x, tf.cast(mask, x.dtype), **how),
        paddle=lambda paddle, x, mask, **how: _masked(x, paddle.cast(mask, x.dtype), **how),
    ),
    *(
        Row(name, _torch_cast, call("cast", "dtype"), call("cast", "dtype"))
        for name in ("cast", "cast_narrow", "cast_integer")
    ),
)
