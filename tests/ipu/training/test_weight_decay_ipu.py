"""Weight decay: part of the gradient or apart from it, once an update, for every weight that is not exempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipu_conformance.run import RunConfig, learning_rate, optimizer

from .frame import Runs
from .table import SHORT, Row, cut, each
from .table import counted as _counted

DECAYED = {
    "sgd": optimizer("sgd", weight_decay=0.5),
    "momentum": optimizer("sgd", momentum=0.75, weight_decay=0.5),
    "adam": optimizer("adam", weight_decay=0.5, **SHORT),
    "adamw": optimizer("adamw", weight_decay=0.5, **SHORT),
    "lamb": optimizer("lamb", weight_decay=0.5, **SHORT),
}


def counted(iterations: int, accumulation: int, replicas: int, rule: str, **changes: Any) -> RunConfig:
    """A configuration with a decay of one half and a gentle rate, which is lower in the second step."""
    gentle = learning_rate("step", base=0.0625, size=1, gamma=0.5)
    return replace(
        _counted(iterations, accumulation, replicas), optimizer=DECAYED[rule], learning_rate=gentle, **changes
    )


PLAIN = {
    **{f"tied_weights-{rule}": Row("tied_weights", counted(4, 2, 3, rule)) for rule in DECAYED},
    **{f"mlp-{rule}": Row("mlp", cut("mlp", counted(4, 6, 1, rule), 3, "pipelined")) for rule in ("momentum", "lamb")},
}


EXEMPT = (("fc1.bias", 0.0), ("fc3.weight", 0.0))
OWN = (("fc1.bias", 0.0), ("fc2.weight", 0.125), ("fc3.weight", 0.125), ("fc4.bias", 0.25))
GROUPED = {
    **{f"exempt-{rule}": Row("mlp", counted(5, 2, 3, rule, decays=EXEMPT)) for rule in ("adam", "adamw", "lamb")},
    **{
        f"groups-{rule}": Row("mlp", counted(4, 3, 2, rule, decays=OWN, steps=2))
        for rule in ("sgd", "momentum", "adamw")
    },
    **{
        f"stages-{rule}": Row("mlp", cut("mlp", counted(4, 6, 1, rule, decays=EXEMPT), 3, "pipelined"))
        for rule in ("adamw", "lamb")
    },
}


@each({**PLAIN, **GROUPED})
def test_weights_decay_as_specified(runs: Runs, name: str, config: RunConfig) -> None:
    """Decay is applied once an update, to every weight of every stage, and a weight of two layers decays once.

    Groups of weights decay as each says, the second group like the first, and exempt ones do not decay.
    """
    runs.compare(name, config, ["losses", "weights"])
