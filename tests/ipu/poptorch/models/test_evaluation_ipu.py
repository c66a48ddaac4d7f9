"""Inference: outputs are the oracle's in every mode, and a model that was trained is evaluated with what it learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ipu_conformance import check, nets
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.oracle.tolerance.runs import for_inference
from ipu_conformance.run import RunConfig

from ...training import NETS, Runs, configured, cut, inference, outputs_as_specified, uncut
from ..training.config import FACTORS

EVALUATION = RunConfig(device_iterations=5, replicas=3, training=False)


@pytest.mark.ipus(4)
@pytest.mark.parametrize("name", [*NETS, "dropout_net"])
def test_a_net_infers_as_specified(runs: Runs, name: str) -> None:
    """Running statistics are used, nothing is dropped, and outputs come back in the order of the inputs."""
    runs.compare_inference(name, EVALUATION)


@pytest.mark.ipus(16)
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("strategy", ["pipelined", "sharded"])
@pytest.mark.parametrize("name", ["mlp", "residual"])
def test_a_cut_changes_no_bit_of_inference(runs: Runs, name: str, strategy: str, stages: int) -> None:
    """Pipelined, sharded and single inference give the same bits."""
    config = cut(name, EVALUATION, stages, strategy)

    check.runs_identical(actual=runs.infer(name, config), expected=runs.infer(name, EVALUATION), fields=["outputs"])


MODES = {"all": ("all", 1), "every-5": ("every_n", 5), "final": ("final", 1), "sum": ("sum", 1)}
SELECTED = {
    word: replace(EVALUATION, output_mode=mode, output_period=period, steps=2) for word, (mode, period) in MODES.items()
}


@pytest.mark.parametrize("config", configured(SELECTED))
def test_outputs_come_back_as_the_mode_says(runs: Runs, config: Any) -> None:
    """Each mode returns its entries with the specified shape, call after call."""
    runs.compare_inference("mlp", config)


@pytest.mark.ipus(16)
@pytest.mark.parametrize("stages", [1, 3], ids=["single", "pipelined"])
@pytest.mark.parametrize("name", ["mlp", "bn_convnet", "dropout_net"])
def test_what_was_learned_is_evaluated(runs: Runs, name: str, stages: int) -> None:
    """An inference model beside its training model uses the newest weights and statistics, after every call."""
    driver, net = runs.driver, nets.NETS[name]()
    training = replace(cut(name, FACTORS, stages), gradient_accumulation=5, steps=2)
    config = cut(name, EVALUATION, stages)
    data, samples = distinct_micro_batches(net, training), distinct_micro_batches(net, config)
    module = driver.NetModule(net, training)
    optimizer = driver.optimizer(training, module.parameters(), 0.25)
    trainer = driver.poptorch.trainingModel(module, driver.options(training), optimizer)
    module.eval()
    evaluator = driver.poptorch.inferenceModel(module, driver.options(config))
    seen = []
    for step in range(training.steps):
        module.train()
        trainer(*driver.tensors(data, step, training))
        module.eval()
        outputs = driver.array(evaluator(driver.tensors(samples, 0, config)[0]))
        statistics = module.statistics() or {}
        weights = module.weights()
        reference = for_inference(net, samples, uncut(config), weights=weights, statistics=statistics or None)
        outputs_as_specified([outputs], *reference)
        seen.append(outputs)
    trainer.destroy()
    evaluator.destroy()

    check.differs(actual=seen[1], other=seen[0], what="the evaluation after the second call")
    changed = [name for name, value in net.initial_weights(training.seed).items() if (weights[name] != value).any()]
    check.holds(changed, f"no weight of {name} has changed in {training.steps} calls.")


@pytest.mark.ipus(4)
def test_evaluation_changes_nothing(runs: Runs) -> None:
    """Training with evaluations in between leaves the bits of training without."""
    driver, net = runs.driver, nets.bn_convnet()
    training = replace(FACTORS, gradient_accumulation=1, steps=2)
    data, samples = distinct_micro_batches(net, training), distinct_micro_batches(net, EVALUATION)
    module = driver.NetModule(net, training)
    optimizer = driver.optimizer(training, module.parameters(), 0.25)
    trainer = driver.poptorch.trainingModel(module, driver.options(training), optimizer)
    evaluator = driver.poptorch.inferenceModel(module, driver.options(EVALUATION))
    for step in range(training.steps):
        module.train()
        trainer(*driver.tensors(data, step, training))
        module.eval()
        evaluator(driver.tensors(samples, 0, EVALUATION)[0])
    weights = module.weights()
    trainer.destroy()
    expected = runs.train("bn_convnet", training).weights or {}

    for name, value in expected.items():
        check.identical(actual=weights[name], expected=value, what=name, because="evaluation only reads")


@pytest.mark.ipus(4)
def test_the_forward_pass_of_training_is_that_of_inference(runs: Runs) -> None:
    """Without batch norm and dropout, inference gives the bits that training starts with."""
    config = replace(FACTORS, device_iterations=1)
    trained, evaluated = runs.train("mlp", config), runs.infer("mlp", inference(config))

    check.identical(actual=(evaluated.outputs or ())[0], expected=(trained.outputs or ())[0], what="the outputs")
