"""Witnesses of softmax and its logarithm."""

from __future__ import annotations

from tests.unit.oracle.witnesses.witness import PADDLE, SCIPY, TENSORFLOW, TORCH

for _name in ("softmax", "log_softmax"):
    SCIPY.add({_name: lambda scipy, x, axis, name=_name: getattr(scipy.special, name)(x, axis=axis)})
    TORCH.add({_name: lambda torch, x, axis, name=_name: getattr(torch.nn.functional, name)(x, dim=axis)})
    TENSORFLOW.add({_name: lambda tf, x, axis, name=_name: getattr(tf.nn, name)(x, axis=axis)})
    PADDLE.add({_name: lambda paddle, x, axis, name=_name: getattr(paddle.nn.functional, name)(x, axis=axis)})
