"""Half precision: models in float16 train within what float16 explains, and types come back as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import distinct_micro_batches

from ...training import Runs, ipus
from ..on_device import infer
from .config import FACTORS

HALF = replace(FACTORS, dtype="float16", gradient_accumulation=5)

pytestmark = ipus(HALF)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_types_come_back_as_they_were(torch: Any, runs: Runs, dtype: str) -> None:
    """Logits have the type of the model, the loss of float32 logits is float32, and weights keep their type."""
    driver, net = runs.driver, nets.mlp()
    config = replace(HALF, dtype=dtype)
    module = driver.NetModule(net, config)
    trainer = driver.poptorch.trainingModel(module, driver.options(config), torch.optim.SGD(module.parameters(), 0.25))
    logits, loss = trainer(*driver.tensors(distinct_micro_batches(net, config), 0, config))
    kinds = {value.dtype for value in module.state_dict().values()}
    trainer.destroy()

    assert logits.dtype == getattr(torch, dtype)
    assert loss.dtype == torch.float32
    assert kinds == {getattr(torch, dtype)}


@pytest.mark.parametrize(
    ("wide", "narrow"), [("float64", "float32"), ("int64", "int32"), ("float16", "float16"), ("int32", "int32")]
)
def test_wide_types_are_narrowed_on_the_device(poptorch: Any, torch: Any, wide: str, narrow: str) -> None:
    """64-bit inputs and outputs become 32-bit ones; all others keep their type, and values that fit are unchanged."""
    x = torch.arange(6).reshape(3, 2).to(getattr(torch, wide))
    same, more = infer(poptorch, lambda model, x: (x, x + 1), x, options=poptorch.Options().deviceIterations(3))

    assert (same.dtype, more.dtype) == (getattr(torch, narrow),) * 2
    assert torch.equal(same, x.to(same.dtype))
    assert torch.equal(more, (x + 1).to(more.dtype))


def test_stochastic_rounding_follows_the_seed(runs: Runs) -> None:
    """The same seed rounds the same way, another one otherwise; the replicas of one run agree."""
    config = replace(HALF, stochastic_rounding=True)
    first, again = runs.train("mlp", config), Runs("poptorch").train("mlp", config)
    check.runs_identical(actual=again, expected=first)

    net = nets.mlp()
    driver, weights = runs.driver, {}
    for seed in (1, 2):
        module = driver.NetModule(net, config)
        chosen = driver.options(config).randomSeed(seed)
        trainer = driver.poptorch.trainingModel(module, chosen, driver.optimizer(config, module.parameters(), 0.25))
        trainer(*driver.tensors(distinct_micro_batches(net, config), 0, config))
        weights[seed] = module.weights()
        trainer.destroy()
    assert any(not (weights[1][name] == weights[2][name]).all() for name in weights[1])


def test_small_values_survive_stochastic_rounding(poptorch: Any, torch: Any) -> None:
    """What float16 holds exactly is not rounded, down to its smallest value: subnormals are values too."""
    x = torch.arange(1, 9, dtype=torch.float32).mul(2.0**-24).half().reshape(4, 2)
    options = poptorch.Options().deviceIterations(4)
    options.Precision.enableStochasticRounding(True)
    out = infer(poptorch, lambda model, x: -x, x, options=options)

    assert out.dtype == torch.float16
    assert torch.equal(out, -x)
