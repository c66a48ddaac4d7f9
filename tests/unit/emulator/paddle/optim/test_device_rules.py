"""Updates as the device computes them: which ops are rewritten, and which decay is lost."""

from __future__ import annotations

from typing import Any, List

import paddle
import pytest

from ipu_conformance.emulator.paddle.compile import subprograms
from ipu_conformance.emulator.paddle.optim import device_rules, stage_updates

from ..programs import static


def trained(make: Any) -> None:
    """A program with one weight."""
    x = paddle.static.data("x", [2, 3], "float32")
    weight = paddle.static.create_parameter([3], "float32", name="w")
    make(paddle.optimizer).minimize(paddle.mean(paddle.square(paddle.multiply(x, weight))))


def decays(program: Any) -> List[float]:
    """The factors by which ops of an update decay."""
    names = ("regularization_coeff", "coeff", "weight_decay")
    return [
        op.attr(name)
        for op in stage_updates.updating(program)
        for name in (
            *names,
            *(("scale",) if op.type() == "scale" and "/regularization" in op.attr("op_namescope") else ()),
        )
        if op.has_attr(name)
    ]


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (lambda o: o.SGD(0.1, weight_decay=0.5), 0.0),
        (lambda o: o.AdamW(0.1, weight_decay=0.5), 0.0),
        (lambda o: o.Lamb(0.1, lamb_weight_decay=0.5), 0.5),
        (lambda o: o.Momentum(0.1, 0.9, weight_decay=0.5), 0.5),
    ],
    ids=["sgd", "adamw", "lamb", "momentum"],
)
def test_decay_is_kept_where_it_is_folded(make: Any, kept: float) -> None:
    """The decay of momentum and lamb stays in the copy, other decay is 0 there; the program itself keeps all."""
    with static() as (program, _, _):
        trained(make)
        copy = device_rules.as_on_device(program)

        assert decays(program) == [0.5]
        assert decays(copy) == [kept]


@pytest.mark.parametrize("kind", ["RMSProp", "Adamax"])
def test_an_update_with_another_epsilon_is_written_in_other_ops(kind: str) -> None:
    """The update is gone from the copy, and what it wrote is written by others of the optimizer's role."""
    with static() as (program, _, _):
        trained(lambda optimizers: getattr(optimizers, kind)(0.1))
        before = [op for op in stage_updates.updating(program) if op.type() == kind.lower()]
        after = stage_updates.updating(device_rules.as_on_device(program))

        assert len(before) == 1
        assert kind.lower() not in [op.type() for op in after]
        lasting = {name for name in subprograms.writes(before[0]) if "mean_grad" not in name}
        assert lasting <= {name for op in after for name in subprograms.writes(op)}
