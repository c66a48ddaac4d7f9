"""Models of the kinds that people train compute, train and converge on a device as the oracle says."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

from ipu_conformance import check
from ipu_conformance.nets import MODELS
from ipu_conformance.oracle.convergence import baseline
from ipu_conformance.oracle.convergence.band import Verdict, judge
from ipu_conformance.workloads.oracle_models import WORKLOADS

from ..training.frame import Runs, expected, inferred, outputs_as_specified, tolerance
from .rows import MANNERS, config_for, each_model, each_row, inferring, ran

SEED = 100
"""A seed that none of the baselines' runs has: theirs are 0 to 19."""


@each_model
def test_a_model_infers_as_specified(runs: Runs, model: str) -> None:
    """The outputs of a model that is not trained are the oracle's; batch norm uses its running statistics."""
    config = inferring(runs.framework)

    outputs_as_specified(ran(runs, model, config).outputs, *inferred(MODELS[model](), config))


@each_model
@each_row
def test_a_model_trains_as_specified(runs: Runs, model: str, row: str) -> None:
    """Losses, outputs, weights and running statistics of three updates are the oracle's, however IPUs share them."""
    net, config = MODELS[model](), config_for(runs.framework, model, row)

    check.runs_equivalent(
        actual=ran(runs, model, config),
        expected=expected(net, config),
        tolerance=tolerance(net, config),
        fields=["losses", "outputs", "weights", *(["statistics"] if net.statistics else [])],
    )


@each_model
def test_a_model_converges_like_its_baseline(runs: Runs, model: str, converges: Callable[[Verdict], None]) -> None:
    """The mean training loss of each epoch is neither lower nor higher than the spread of the oracle's runs allows."""
    workload = WORKLOADS[f"oracle-{model.replace('_', '-')}"]
    config = workload.config(**MANNERS[runs.framework])
    recorded = baseline.load(Path(workload.name))
    losses = workload.losses(lambda net, data, config: runs.driver.train(net, config, data), config, SEED)

    converges(judge(recorded.band(), [losses], metric=f"the {model}'s {recorded.metric}"))
