"""Activations."""

from __future__ import annotations

from .op_test_ipu import F, called, case, forward_and_gradient, values

SHAPE = (2, 3, 4)

CASES = (
    case("relu", F + "relu", values(*SHAPE, avoid=[0.0])),
    case("relu6", F + "relu6", values(*SHAPE, low=-3.0, high=9.0, avoid=[0.0, 6.0])),
    case("sigmoid", F + "sigmoid", values(*SHAPE)),
    case("tanh", "tanh", values(*SHAPE)),
    case("silu", F + "silu", values(*SHAPE)),
    case("softsign", F + "softsign", values(*SHAPE)),
    case("tanh_shrink", F + "tanhshrink", values(*SHAPE, low=0.5)),
    case("mish", F + "mish", values(*SHAPE)),
    case("log_sigmoid", F + "log_sigmoid", values(*SHAPE)),
    case("selu", F + "selu", values(*SHAPE, avoid=[0.0])),
    case("hardswish", F + "hardswish", values(*SHAPE, low=-5.0, high=5.0, avoid=[-3.0, 3.0])),
    case("elu", F + "elu", values(*SHAPE, avoid=[0.0]), alpha=0.5),
    case("celu", F + "celu", values(*SHAPE, avoid=[0.0]), alpha=0.5),
    case("leaky_relu", called(F + "leaky_relu", "slope"), values(*SHAPE, avoid=[0.0]), slope=0.25),
    case("hardtanh", called(F + "hardtanh", "low", "high"), values(*SHAPE, avoid=[-0.5, 1.25]), low=-0.5, high=1.25),
    case("hardshrink", F + "hardshrink", values(*SHAPE, avoid=[-0.75, 0.75]), threshold=0.75),
    case("softshrink", F + "softshrink", values(*SHAPE, avoid=[-0.75, 0.75]), threshold=0.75),
    case("hardsigmoid", F + "hardsigmoid", values(*SHAPE, low=-4.0, high=4.0, avoid=[-3.0, 3.0]), slope=0.125,
         offset=0.375),
    case("softplus", F + "softplus", values(*SHAPE), beta=1.0),
)  # fmt: skip

test_forward, test_gradient = forward_and_gradient(CASES)
