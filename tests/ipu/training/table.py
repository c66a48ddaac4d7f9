"""The configurations that the cases share, in words that belong to no framework, and what each framework lacks of them.

Counts of one row differ from one another. A row is run once by each framework, whatever number of cases looks at it.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

import pytest

from ipu_conformance.frameworks import dialects, limits
from ipu_conformance.run import Rule, RunConfig, learning_rate, optimizer

from .frame import AnyNet, cut, ipus, net_of
from .tiny import PAIR, SAMPLES, TOWER, TWO_NORMS


class Row(NamedTuple):
    """A net and a neutral configuration."""

    net: AnyNet
    config: RunConfig


Table = Mapping[str, Row]

# Settings are exact in float32, and epsilon is large, so that no gradient is too small for its root: rounding errors
# stay in proportion to the step.
BETAS = {"beta1": 0.875, "beta2": 0.96875, "epsilon": 0.0625}
SHORT = {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.125}
RULES: Dict[str, Rule] = {
    "sgd": optimizer("sgd"),
    "momentum": optimizer("sgd", momentum=0.5),
    "adam": optimizer("adam", **BETAS),
    "adamw": optimizer("adamw", weight_decay=0.125, **SHORT),
    "rmsprop": optimizer("rmsprop", alpha=0.75, epsilon=0.0625, momentum=0.5),
    "lamb": optimizer("lamb", weight_decay=0.125, **SHORT),
}
BASE = RunConfig(learning_rate=learning_rate(base=0.125), optimizer=RULES["momentum"])


def counted(iterations: int, accumulation: int, replicas: int, rule: str = "momentum", **changes: Any) -> RunConfig:
    """A configuration with these counts and the optimizer of this name; the rates of adaptive ones are lower."""
    if rule not in ("sgd", "momentum"):
        changes.setdefault("learning_rate", learning_rate(base=0.03125))
    return BASE.with_counts(iterations, accumulation, replicas, optimizer=RULES[rule], **changes)


def row(
    name: AnyNet,
    counts: Tuple[int, int, int],
    rule: str = "momentum",
    at: str = "",
    word: str = "",
    **changes: Any,
) -> Table:
    """One row under an id that ends with ``word``; ``at`` is a schedule and a number of stages: "pipelined-3"."""
    config = counted(*counts, rule, **changes)
    if at:
        schedule, _, stages = at.partition("-")
        config = cut(name, config, int(stages), schedule)
    words = [str(name), at, config.counts_id, rule, "recompute" if config.recompute else "", word]
    return {"-".join(filter(None, words)): Row(name, config)}


def table(*rows: Table) -> Table:
    """Rows in one table; no two have one id."""
    joined = {word: each for one in rows for word, each in one.items()}
    if len(joined) < len(rows):
        raise ValueError(f"{len(rows)} rows have {len(joined)} ids")
    return joined


WHOLE = table(
    row("linear", (1, 1, 1), "sgd", steps=5),
    row("mlp", (2, 4, 3), steps=2),
    row("convnet", (1, 3, 2), "adam", steps=2),
    row("bn_convnet", (2, 1, 3), "adamw"),
    row("bn_convnet", (1, 3, 4)),
    row("residual", (3, 1, 2), "rmsprop"),
    row("tied_weights", (2, 5, 3), "adam"),
    row("mlp", (3, 2, 5), "adamw"),
    row(PAIR, (4, 3, 5), "adam", steps=3, micro_batch=SAMPLES),
    row(TWO_NORMS, (3, 4, 5), micro_batch=SAMPLES),
)
"""Nets on one IPU a replica."""
STAGED = table(
    row("mlp", (3, 4, 1), "adam", "pipelined-2", recompute=True),
    row("mlp", (2, 6, 3), "momentum", "pipelined-3", steps=2),
    row("mlp", (1, 8, 2), "rmsprop", "pipelined-4", recompute=True),
    row("convnet", (2, 6, 1), "adamw", "pipelined-3"),
    row("bn_convnet", (1, 6, 2), "momentum", "pipelined-3", recompute=True),
    row("residual", (1, 6, 2), "adam", "pipelined-3", recompute=True),
    row("tied_weights", (2, 6, 1), "rmsprop", "pipelined-3"),
    row("residual", (1, 8, 3), "sgd", "pipelined-4"),
    row("mlp", (3, 2, 1), "sgd", "sharded-3"),
    row("convnet", (1, 3, 2), "momentum", "sharded-2"),
    row("bn_convnet", (2, 3, 1), "adam", "sharded-4"),
    row("tied_weights", (1, 2, 3), "adamw", "sharded-4"),
    row(TOWER, (3, 6, 4), "momentum", "pipelined-3", recompute=True, micro_batch=SAMPLES),
    row(TOWER, (4, 9, 2), "adam", "pipelined-5", recompute=True, micro_batch=SAMPLES),
)
"""Nets that are cut into stages; the micro-batches fill every vendor's pipeline."""
GRID = table(*({word: each} for part in (WHOLE, STAGED) for word, each in part.items()))


def chosen(rows: Table, wanted: Callable[[Row], Any]) -> Table:
    """The rows that are wanted."""
    return {word: each for word, each in rows.items() if wanted(each)}


def unable(framework: str, name: AnyNet, config: RunConfig) -> Optional[str]:
    """What a framework has no words for in a neutral configuration; None if it can say all of it."""
    return limits.inexpressible(framework, net_of(name), dialects.spoken(framework, config))


Lacking = Union[str, Callable[[RunConfig], Optional[str]]]
"""What a framework has no words for: in every row, or as a row's configuration says."""


def each(rows: Table, *, without: Optional[Mapping[str, Lacking]] = None) -> Any:
    """Parametrise a case over the ``name`` of a net and a ``config``, on every framework that can express them.

    ``without`` names frameworks that have no words for the case itself, with what they lack.
    """
    return pytest.mark.parametrize(("name", "config"), _params(rows, without or {}), indirect=["config"])


def _params(rows: Table, without: Mapping[str, Lacking]) -> Iterable[Any]:
    params: List[Any] = []
    for word, (name, config) in rows.items():
        own = {framework: what(config) if callable(what) else what for framework, what in without.items()}
        lacking = {framework: own.get(framework) or unable(framework, name, config) for framework in limits.NAMES}
        marks = [pytest.mark.unable(framework, what) for framework, what in lacking.items() if what]
        layout = "poptorch" if lacking["tensorflow"] else "tensorflow"
        marks.append(ipus(dialects.spoken(layout, config)))
        params.append(pytest.param(name, config, id=word, marks=marks))
    return params
