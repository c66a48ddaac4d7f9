"""Witnesses of embedding, dropout with a given mask, and casts."""

from __future__ import annotations

from tests.unit.oracle.witnesses.witness import PADDLE, TENSORFLOW, TORCH, refusing


def _embedding(module, ids, weight, padding_idx=None, padding="zero"):
    return module.nn.functional.embedding(ids, weight, padding_idx)


def _masked(x, kept, rate, mode, training):
    if not training:
        return x * (1 - rate) if mode == "downscale_in_infer" else x * 1
    return x * kept / (1 - rate) if mode == "upscale_in_train" else x * kept


TORCH.add(
    {
        "embedding": refusing(
            _embedding,
            lambda *_, padding_idx=None, padding="zero": padding_idx is not None and padding != "row",
            "torch looks the padding row up like any other",
        ),
        "dropout": lambda torch, x, mask, **how: _masked(x, mask.to(x.dtype), **how),
        **dict.fromkeys(("cast", "cast_narrow", "cast_integer"), lambda torch, x, dtype: x.to(getattr(torch, dtype))),
    }
)
TENSORFLOW.add(
    {
        "embedding": refusing(
            lambda tf, ids, weight, **_: tf.nn.embedding_lookup(weight, ids),
            lambda *_, padding_idx=None, **__: padding_idx is not None,
            "TensorFlow has no padding row",
        ),
        "dropout": lambda tf, x, mask, **how: _masked(x, tf.cast(mask, x.dtype), **how),
        **dict.fromkeys(("cast", "cast_narrow", "cast_integer"), lambda tf, x, dtype: tf.cast(x, dtype)),
    }
)
PADDLE.add(
    {
        "embedding": refusing(
            _embedding, lambda *_, padding="zero", **__: padding != "zero", "Paddle's padding row gives zeros"
        ),
        "dropout": lambda paddle, x, mask, **how: _masked(x, mask.astype(x.dtype), **how),
        **dict.fromkeys(
            ("cast", "cast_narrow", "cast_integer"),
            refusing(
                lambda paddle, x, dtype: paddle.cast(x, dtype),
                lambda x, dtype: dtype == "float16",
                "Paddle truncates to float16 on a CPU where the others round",
            ),
        ),
    }
)
