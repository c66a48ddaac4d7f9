"""Nets so small that many replicas, stages and updates of them cost little."""

from __future__ import annotations

from dataclasses import replace

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


def _two_norms() -> Net:
    chain = Chain()
    for number, (inputs, momentum, epsilon) in enumerate([(1, 0.25, 2.0**-10), (2, 0.5, 2.0**-13)], 1):
        chain.conv(f"conv{number}", inputs, 2, bias=False, kernel=1)
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
    return chain.net("two_norms", (1, 2, 2), 3)


PAIR = _linear("pair", 0)
"""Two linear layers."""
SUMMED = replace(PAIR, name="summed", loss_settings=(("reduction", "sum"),))
"""The same with the sum of the samples' losses for a loss."""
TOWER = _linear("tower", 3)
"""Five linear layers, each of which can begin a stage; the three in the middle use one weight."""
TWO_NORMS = _two_norms()
"""Two batch norms, each with a momentum and an epsilon of its own."""
