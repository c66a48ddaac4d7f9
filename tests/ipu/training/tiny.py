"""Nets so small that many replicas, stages and updates of them cost little."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

from ipu_conformance.nets import Net, Weight
from ipu_conformance.nets.chain import Chain

SAMPLES = 3
"""The samples of a micro-batch; the other nets have two."""


def _linear(name: str, tied: int) -> Net:
    """Linear layers, so many of which share a weight between the first and the last."""
    chain = Chain()
    chain.linear("fc1", 4, 3)
    for number in range(2, tied + 3):
        chain.add(f"act{number - 1}", "tanh")
        chain.linear(f"fc{number}", 3, 3, **({"shared": "tied"} if number < tied + 2 else {}))
    return chain.net(name, (4,), 3)


def _norms(net: str, *settings: Tuple[float, float]) -> Net:
    chain = Chain()
    for number, (momentum, epsilon) in enumerate(settings, 1):
        chain.conv(f"conv{number}", 2 if number > 1 else 1, 2, bias=False, kernel=1)
        name = f"bn{number}"
        weights = chain.declare(Weight(f"{name}.weight", (2,), constant=1.0), Weight(f"{name}.bias", (2,)))
        chain.statistics += (
            Weight(f"{name}.running_mean", (2,)),
            Weight(f"{name}.running_var", (2,), constant=1.0),
        )
        chain.add(name, "batch_norm", weights=weights, momentum=momentum, epsilon=epsilon)
        chain.add(f"act{number}", "tanh")
    chain.add("flat", "flatten", start=1, stop=-1)
    chain.linear("fc1", 8, 3)
    return chain.net(net, (1, 2, 2), 3)


def _unmoved() -> Net:
    chain = Chain()
    weights = chain.declare(Weight("fc1.weight", (3, 4)), Weight("fc1.bias", (3,), constant=-64.0))
    chain.add("fc1", "linear", weights=weights)
    chain.add("act1", "relu")
    chain.linear("fc2", 3, 3)
    return chain.net("unmoved", (4,), 3)


PAIR = _linear("pair", 0)
"""Two linear layers."""
SUMMED = replace(PAIR, name="summed", loss_settings=(("reduction", "sum"),))
"""The same with the sum of the samples' losses for a loss."""
TOWER = _linear("tower", 3)
"""Five linear layers, each of which can begin a stage; the three in the middle use one weight."""
TWO_NORMS = _norms("two_norms", (0.25, 2.0**-10), (0.5, 2.0**-13))
"""Two batch norms, each with a momentum and an epsilon of its own."""
THREE_NORMS = _norms("three_norms", (0.25, 2.0**-10), (0.5, 2.0**-13), (0.375, 2.0**-11))
"""Three batch norms; of four stages each but the last has one."""
UNMOVED = _unmoved()
"""Two layers, of which the rectifier between them lets nothing through: only the last bias has a gradient."""
