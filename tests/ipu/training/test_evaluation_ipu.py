"""Evaluation: inference is the oracle's, uses what was learned so far, and leaves training as it was."""

from __future__ import annotations

from dataclasses import replace

from ipu_conformance import check
from ipu_conformance.nets import distinct_micro_batches
from ipu_conformance.oracle.tolerance.runs import for_inference
from ipu_conformance.run import RunConfig

from .frame import CUT, NETS, Runs, cut, data_of, net_of, outputs_as_specified, uncut
from .table import BASE, Row, each, row, table


def inferring(iterations: int, replicas: int) -> RunConfig:
    """A configuration without training."""
    return BASE.with_counts(iterations, 1, replicas, training=False, steps=2)


INFERENCE = {
    **{name: Row(name, inferring(5, 3)) for name in (*NETS, "dropout_net")},
    **{f"{name}-pipelined-3": Row(name, cut(name, inferring(6, 2), 3)) for name in CUT},
    **{f"{name}-sharded-2": Row(name, cut(name, inferring(3, 2), 2, "sharded")) for name in CUT[1:3]},
    "linear-many": Row("linear", replace(inferring(4, 5), micro_batch=3, steps=3)),
    "mlp-interleaved-4": Row("mlp", cut("mlp", inferring(8, 1), 4, "interleaved")),
}


@each(INFERENCE)
def test_a_net_infers_as_specified(runs: Runs, name: str, config: RunConfig) -> None:
    """Running statistics are used, nothing is dropped, and outputs come back in the order of the inputs."""
    runs.compare_inference(name, config)


EVALUATED = table(
    row("mlp", (2, 3, 1), "adam", steps=3),
    row("bn_convnet", (2, 1, 3), "momentum", steps=3),
    row("dropout_net", (1, 3, 2), "momentum", steps=3),
    row("mlp", (1, 6, 2), "momentum", "pipelined-3", steps=3),
    row("bn_convnet", (1, 4, 1), "momentum", "pipelined-2", steps=3),
    row("residual", (2, 3, 1), "adamw", "sharded-4", steps=3),
)


@each(EVALUATED)
def test_what_was_learned_is_evaluated(runs: Runs, name: str, config: RunConfig) -> None:
    """Between steps, inference uses the newest weights and statistics."""
    net, asked, seen = net_of(name), config.inference(), []
    data, questions = data_of(name, config), distinct_micro_batches(net, asked, seed=7)
    with runs.driver.training(net, config) as trainer:
        for step in range(config.steps):
            trainer.step(data, step)
            seen.append(trainer.evaluate(questions))
            weights, statistics = trainer.weights(), trainer.statistics()
            reference = for_inference(net, questions, uncut(asked), weights=weights, statistics=statistics)
            outputs_as_specified(seen[-1:], *reference)

    check.differs(actual=seen[2], other=seen[1], what="the output after another step")


READS = "evaluation only reads"
UNTOUCHED = {word: each for word, each in EVALUATED.items() if each.net != "dropout_net"}


@each(UNTOUCHED)
def test_evaluation_changes_nothing(runs: Runs, name: str, config: RunConfig) -> None:
    """Training with evaluations in between leaves the bits of training without."""
    net, asked = net_of(name), config.inference()
    data, questions = data_of(name, config), distinct_micro_batches(net, asked, seed=7)
    losses, weights = [], []
    for evaluated in (True, False):
        with runs.driver.training(net, config) as trainer:
            steps = []
            for step in range(config.steps):
                steps.append(trainer.step(data, step)[0])
                if evaluated:
                    trainer.evaluate(questions)
            losses.append(steps)
            weights.append({**trainer.weights(), **(trainer.statistics() or {})})

    for step, (loss, wanted) in enumerate(zip(*losses)):
        check.identical(actual=loss, expected=wanted, what=f"the losses of step {step}", because=READS)
    for weight, value in weights[1].items():
        check.identical(actual=weights[0][weight], expected=value, what=weight, because=READS)


@each(table(row("mlp", (1, 4, 3)), row("mlp", (1, 3, 1)), row("residual", (1, 6, 1), at="pipelined-3")))
def test_the_forward_pass_of_training_is_that_of_inference(runs: Runs, name: str, config: RunConfig) -> None:
    """Without batch norm and dropout, inference gives the bits that training starts with."""
    trained, inferred = runs.train(name, config), runs.infer(name, replace(config.inference(), steps=config.steps))

    check.identical(actual=(inferred.outputs or ())[0], expected=(trained.outputs or ())[0], what="the outputs")
