"""Half precision: models in float16 train within what float16 explains, and types come back as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.run import optimizer

from ...training import Runs, cut, ipus
from ..on_device import infer
from .config import FACTORS

HALF = replace(FACTORS, dtype="float16", gradient_accumulation=5)

pytestmark = ipus(HALF)


@pytest.mark.parametrize("name", ["linear", "mlp", "convnet", "residual", "tied_weights"])
def test_a_net_in_half_trains_as_specified(runs: Runs, name: str) -> None:
    """Weights and inputs in float16 give the oracle's run within the tolerance of float16."""
    runs.compare(name, HALF)


@pytest.mark.ipus(16)
@pytest.mark.parametrize("strategy", ["pipelined", "sharded"])
@pytest.mark.parametrize("name", ["mlp", "convnet", "tied_weights"])
def test_a_cut_net_in_half_trains_as_specified(runs: Runs, name: str, strategy: str) -> None:
    """Boundaries between stages are float16 too."""
    runs.compare(name, cut(name, HALF, 3, strategy))


@pytest.mark.ipus(16)
@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_a_cut_changes_no_bit_in_half(runs: Runs, name: str) -> None:
    """Pipelined, sharded and single execution agree bit for bit in float16 too."""
    whole = runs.train(name, HALF)

    for strategy in ("pipelined", "sharded"):
        check.runs_identical(actual=runs.train(name, cut(name, HALF, 3, strategy)), expected=whole)


RULES = {"sgd": optimizer("sgd", momentum=0.5), "adam": optimizer("adam", epsilon=0.0625)}


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_scaled_loss_in_half_trains_as_specified(runs: Runs, rule: Any) -> None:
    """Loss scaling lifts small gradients of float16 and is taken out again before the update."""
    config = replace(HALF, optimizer=rule, loss_scale=64.0)

    runs.compare("mlp", config, family="poptorch", fields=["losses", "weights"])


@pytest.mark.emulator
@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_replicas_in_half_hold_identical_weights(runs: Runs, name: str) -> None:
    """Replicas in float16 hold the same bits."""
    check.replicas_identical(runs.train(name, HALF).weights_by_replica, step=HALF.steps)


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


def test_half_is_coarser_than_single(runs: Runs) -> None:
    """A run in float16 differs from the one in float32, from the same weights and data that both hold exactly."""
    half, single = runs.train("mlp", HALF), runs.train("mlp", replace(HALF, dtype="float32"))

    assert not (half.losses[0] == single.losses[0]).all()


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


@pytest.mark.parametrize("stages", [1, pytest.param(3, marks=ipus(cut("mlp", HALF, 3)))])
def test_partial_sums_in_half_train_as_specified(runs: Runs, stages: int) -> None:
    """Partial sums in float16, where the device has them, stay within the tolerance of float16 partials."""
    runs.compare("mlp", cut("mlp", replace(HALF, partials="float16"), stages))


@pytest.mark.parametrize("name", ["mlp", "tied_weights"])
def test_stochastic_rounding_trains_as_specified(runs: Runs, name: str) -> None:
    """Rounding at random stays within what the oracle's random rounding gives."""
    runs.compare(name, replace(HALF, stochastic_rounding=True))


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
