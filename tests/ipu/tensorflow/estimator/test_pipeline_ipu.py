"""Pipelined estimators train, evaluate and predict what a plain loop over the micro-batches would."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np
import pytest

from ipu_conformance import check

from ..exact import RATE, START, samples
from .pipelines import SCHEDULES, Chain, Programs, check_chain, check_mean, flat, needing, products

pytestmark = [pytest.mark.ipus(2), pytest.mark.requires("tensorflow_estimator")]

CHAINS = {f"{name}-R{replicas}": Chain(schedule=name, replicas=replicas) for name in SCHEDULES for replicas in (1, 2)}
FOUR = {
    name: Chain(number_of_stages=4, gradient_accumulation=count, device_iterations=1, schedule=name)
    for name, count in (("Grouped", 8), ("Interleaved", 4), ("Sequential", 3))
}
MAPPED = {
    "swapped": Chain(devices=(1, 0)),
    "last-on-first": Chain(
        number_of_stages=3, gradient_accumulation=3, replicas=2, schedule="Sequential", devices=(0, 1, 0)
    ),
    "all-on-one": Chain(gradient_accumulation=3, schedule="Sequential", devices=(0, 0)),
}
REDUCED = {
    method: Chain(gradient_accumulation=2, schedule="Interleaved", accumulation_reduction=method)
    for method in ("sum", "mean", "running_mean", "unasked")
}
"""Reductions of gradients; they are summed unless another is asked for."""
LOOPS = {"two-loops": (Chain(device_iterations=1), 2), "two-loops-R2": (Chain(device_iterations=1, replicas=2), 2)}


@pytest.mark.parametrize(
    ("chain", "loops"),
    needing({**{name: (chain, 1) for name, chain in {**CHAINS, **FOUR, **MAPPED, **REDUCED}.items()}, **LOOPS}),
)
def test_a_chain_trains_as_a_plain_loop_does(chains: Programs, chain: Chain, loops: int) -> None:
    """A run of the pipeline updates once: sums or means over micro-batches, means over replicas, wherever stages are.

    Weights stay on the device between loops. After each loop the host sees the mean of the losses of all its
    micro-batches on all replicas, and a global step that counts a replica's micro-batches.
    """
    got = chains.trained(chain, loops)

    check_chain(got.weights, chain, loops)
    for number, losses in enumerate(chain.expected(loops).losses.reshape(loops, -1)):
        check_mean(got.losses[number], losses, f"the loss of loop {number}", roundings=2)
    steps = [chain.iterations * (loop + 1) for loop in range(loops)]
    check.equal(actual=got.steps, expected=steps, what="the global step after each loop")


@pytest.mark.parametrize("chain", needing({"R1": Chain(momentum=0.5), "R2": Chain(momentum=0.5, replicas=2)}))
def test_optimizers_keep_their_state(chains: Programs, chain: Chain) -> None:
    """The velocity of an update goes into the next; a checkpoint holds it and the weights once, for all replicas."""
    got = chains.trained(chain)

    check_chain(got.weights, chain)
    names = ["global_step", "w0", "w0/Momentum", "w1", "w1/Momentum"]
    check.equal(actual=sorted(got.names), expected=names, what="the variables of the checkpoint")


def test_training_again_goes_on(programs: Programs) -> None:
    """A second training begins with what the first has saved, and its global step."""
    chain = Chain(device_iterations=1, momentum=0.5)
    estimator = programs.estimator(chain)
    programs.train(chain, estimator=estimator)
    got = programs.train(chain, estimator=estimator, input_fn=programs.fed(chain, skip=1))

    check_chain(got.weights, chain, 2)
    check.equal(actual=got.steps, expected=[2 * chain.iterations], what="the global step after the second training")


def test_max_steps_are_rounded_up(programs: Programs) -> None:
    """Training to a number of steps ends with the loop that reaches it."""
    chain = Chain(device_iterations=1)
    estimator = programs.estimator(chain)
    estimator.train(programs.fed(chain, 3), max_steps=chain.iterations + 1)

    step = int(estimator.get_variable_value("global_step"))
    check.equal(actual=step, expected=2 * chain.iterations, what=f"the global step of {chain.iterations + 1} max_steps")
    check_chain(programs.weights(estimator, chain), chain, 2)


@pytest.mark.parametrize("named", [False, True], ids=["tuple", "named"])
def test_the_first_stage_gets_features_and_labels(programs: Programs, named: bool) -> None:
    """An element of the data set is the first stage's arguments: in order, or by name if it is a dictionary."""
    chain = Chain(device_iterations=1)
    x, y = samples(4), samples(8)[4:]

    def first(features: Any, labels: Any) -> Any:
        return features * programs.weight(0), labels

    def last(product: Any, labels: Any) -> Any:
        return programs.tf.reduce_sum(product * programs.weight(1) * labels)

    estimator = programs.estimator(chain, model_fn=programs.model_fn(chain, computational_stages=[first, last]))
    fed = programs.input_fn({"labels": y, "features": x} if named else (x, y))
    got = programs.train(chain, estimator=estimator, input_fn=fed)

    step = RATE * np.float64(x * y).sum()
    expected = np.asarray([START[0] - step * START[1], START[1] - step * START[0]], np.float32)
    check.identical(actual=got.weights, expected=expected, what="the weights")


def test_the_model_function_gets_params_and_config(programs: Programs) -> None:
    """A model function may ask for mode, params and config."""
    chain = Chain(device_iterations=1)
    seen: List[Any] = []

    def model_fn(mode: str, params: Any, config: Any) -> Any:
        seen.append((mode, params["stages"], config.ipu_run_config.iterations_per_loop))
        return programs.spec(mode, **programs.settings(chain, mode))

    estimator = programs.estimator(chain, model_fn=model_fn, params={"stages": 2})
    estimator.train(programs.fed(chain), steps=chain.iterations)

    expected = {("train", 2, chain.iterations)}
    check.equal(actual=set(seen), expected=expected, what="the mode, params and iterations that model_fn gets")


def test_the_loss_is_what_the_optimizer_function_names(programs: Programs) -> None:
    """The host sees the loss that the optimizer function returns, whatever else the last stage returns."""
    chain, ops = Chain(device_iterations=1), programs.ipu.pipelining_ops

    def last(x: Any) -> Any:
        product = x * programs.weight(1)
        return programs.tf.reduce_sum(product), product

    def optimizer_function(loss: Any, product: Any) -> Any:
        return ops.OptimizerFunctionOutput(programs.optimizer(chain), 2 * loss)

    first = programs.stages(chain, "train")[0]
    got = programs.train(chain, computational_stages=[first, last], optimizer_function=optimizer_function)

    plain = chain.expected()
    check.identical(
        actual=np.asarray(got.losses, np.float32),
        expected=np.asarray([2 * plain.losses.mean()], np.float32),
        what="the loss of the loop",
    )
    check.identical(
        actual=got.weights - np.asarray(START[:2], np.float32),
        expected=2 * (plain.weights - np.asarray(START[:2], np.float32)),
        what="the change of the weights",
    )


def test_some_variables_are_trained(programs: Programs) -> None:
    """What the optimizer function passes to compute_gradients chooses the variables that are trained."""
    chain, ops = Chain(device_iterations=1), programs.ipu.pipelining_ops

    def optimizer_function(loss: Any) -> Any:
        chosen = [variable for variable in programs.v1.trainable_variables() if variable.name == "w1:0"]
        return ops.OptimizerFunctionOutput(
            programs.optimizer(chain), loss, compute_gradients_kwargs={"var_list": chosen}
        )

    got = programs.train(chain, optimizer_function=optimizer_function)

    check.identical(
        actual=got.weights, expected=np.asarray([START[0], chain.expected().weights[1]], np.float32), what="the weights"
    )


def test_losses_are_added_up_in_their_own_type(programs: Programs) -> None:
    """The type of the loss accumulator is that in which the losses of a run are added up."""
    chain = Chain(device_iterations=1)
    values = np.asarray([2048.0, 1.0, 0.0, 0.0], np.float32)
    got = programs.train(chain, input_fn=programs.input_fn(values), loss_accumulator_dtype=programs.tf.float16)

    losses = values * np.float32(START[0] * START[1])
    rounded = losses.astype(np.float16).sum(dtype=np.float16)
    check.differs(actual=float(rounded), other=float(losses.sum()), what="the sum of these losses in float16")
    expected = float(rounded) / chain.gradient_accumulation
    check.equal(actual=float(got.losses[0]), expected=expected, what="the loss, added up in float16")


@pytest.mark.parametrize("mode", ["Auto", "RecomputeThenBackpropagate", "RecomputeAndBackpropagateInterleaved"])
def test_recomputation_changes_nothing(programs: Programs, mode: str) -> None:
    """Options of the pipeline are handed on; what is recomputed is the same."""
    chain = Chain(number_of_stages=3, gradient_accumulation=6, device_iterations=1, recompute=mode != "Auto")
    got = programs.train(chain, recomputation_mode=programs.ipu.pipelining_ops.RecomputationMode[mode])

    check_chain(got.weights, chain)


@pytest.mark.parametrize(
    ("chain", "multiple"),
    [(Chain(gradient_accumulation=6), 4), (Chain(gradient_accumulation=3, schedule="Interleaved"), 2)],
    ids=["Grouped", "Interleaved"],
)
def test_a_count_that_does_not_fit_fails_when_it_runs(programs: Programs, chain: Chain, multiple: int) -> None:
    """The count of a pipeline is a multiple of what its schedule asks for."""
    count = chain.gradient_accumulation
    sentence = f"The number of iterations of the pipeline must be a multiple of {multiple}, but it is {count}."

    with check.raises(programs.tf.errors.FailedPreconditionError, match=sentence, what=f"a count of {count}"):
        programs.train(chain)


EVALUATED = {
    "one-loop": (Chain(), 1),
    "three-loops": (Chain(gradient_accumulation=2, device_iterations=2), 3),
    "batches": (Chain(device_iterations=1, micro_batch=3), 1),
    "replicas": (Chain(replicas=2, micro_batch=3), 1),
    "sequential": (Chain(number_of_stages=3, gradient_accumulation=5, device_iterations=1, schedule="Sequential"), 2),
}


@pytest.mark.parametrize(("chain", "loops"), needing(EVALUATED))
def test_evaluation_sees_every_sample(programs: Programs, chain: Chain, loops: int) -> None:
    """The function for metrics gets what the last stage returns for all samples of all replicas."""
    got = programs.evaluated(chain, loops)

    want = products(loops * chain.iterations * chain.replicas * chain.micro_batch, START[: chain.number_of_stages])
    check_mean(got["loss"], want, "the loss")
    check_mean(got["squares"], np.square(want), "the mean of the squares")


def test_evaluation_uses_what_was_trained(chains: Programs) -> None:
    """An evaluation restores the newest checkpoint, counts on from its global step, and changes no weight."""
    chain = Chain(replicas=2)
    seen = chains.trained(chain)
    estimator = chains.estimator(chain, seen.folder)
    got = chains.evaluated(chain, estimator=estimator)

    weights = seen.weights
    check_mean(got["loss"], samples(16) * np.prod(weights.astype(np.float64)), roundings=6)
    check.equal(actual=got["global_step"], expected=2 * chain.iterations, what="the global step of the evaluation")
    check.identical(actual=chains.weights(estimator, chain), expected=weights, what="the weights")


def test_several_outputs_reach_the_metrics(programs: Programs) -> None:
    """The function for metrics takes the outputs of the last stage in order."""
    chain = Chain(device_iterations=1)
    seen: List[Any] = []

    def last(x: Any) -> Any:
        return x * programs.weight(1), programs.tf.cast(x > 1, programs.tf.int32)

    def metrics(values: Any, large: Any) -> Dict[str, Any]:
        seen.append((values.dtype, large.dtype))
        share = programs.v1.metrics.mean(programs.tf.cast(large, programs.tf.float32))
        return {"loss": programs.tf.reduce_mean(values), "share": share}

    first = programs.stages(chain, "eval")[0]
    got = programs.evaluated(chain, computational_stages=[first, last], eval_metrics_fn=metrics)

    dtypes = {(programs.tf.float32, programs.tf.int32)}
    check.equal(actual=set(seen), expected=dtypes, what="the dtypes of the outputs that reach the metrics")
    check.equal(actual=got["share"], expected=(samples(4) > 1).mean(), what="the share of large samples")
    check_mean(got["loss"], products(4))


def test_a_loss_of_each_micro_batch_counts_with_its_mean(programs: Programs) -> None:
    """The function for metrics may hand on the losses as the last stage returned them."""
    chain = Chain(device_iterations=1)

    def last(x: Any) -> Any:
        return programs.tf.reduce_sum(x * programs.weight(1))

    first = programs.stages(chain, "eval")[0]
    got = programs.evaluated(chain, computational_stages=[first, last], eval_metrics_fn=lambda loss: {"loss": loss})

    check_mean(got["loss"], products(4))


PREDICTED = {
    "one-loop": (Chain(), 8),
    "two-loops": (Chain(gradient_accumulation=2, device_iterations=2), 8),
    "batches": (Chain(device_iterations=1, micro_batch=3), 12),
    "replicas": (Chain(device_iterations=1, replicas=2, micro_batch=3), 24),
    "interleaved": (Chain(number_of_stages=4, device_iterations=1, schedule="Interleaved"), 4),
}


@pytest.mark.parametrize(("chain", "number"), needing(PREDICTED))
def test_predictions_come_in_the_order_of_the_samples(programs: Programs, chain: Chain, number: int) -> None:
    """There is one prediction for each sample, in the order of the data set, on however many replicas."""
    with check.accepted(f"asking for {number} predictions"):
        got = programs.predicted(chain, number)

    want = products(number, START[: chain.number_of_stages])
    check.identical(actual=flat(got), expected=want, what="the predictions")


def test_predictions_have_names(programs: Programs) -> None:
    """A dictionary that the last stage returns is the dictionary of each prediction; keys may be chosen."""
    chain = Chain(device_iterations=1, micro_batch=2)

    def last(x: Any) -> Any:
        return {"product": x * programs.weight(1), "double": 2 * x}

    first = programs.stages(chain, "infer")[0]
    estimator = programs.estimator(chain, model_fn=programs.model_fn(chain, computational_stages=[first, last]))
    whole = programs.predicted(chain, 8, estimator=estimator)
    names = [sorted(one) for one in whole]
    check.equal(actual=names, expected=[["double", "product"]] * 8, what="the names of all predictions")
    chosen = programs.predicted(chain, 8, estimator=estimator, predict_keys=["double"])

    names = [sorted(one) for one in chosen]
    check.equal(actual=names, expected=[["double"]] * 8, what="the names of the chosen predictions")
    check.identical(actual=flat([one["product"] for one in whole]), expected=products(8), what="the products")
    check.identical(actual=flat([one["double"] for one in chosen]), expected=2 * samples(8), what="the doubles")


def test_predictions_use_what_was_trained(chains: Programs) -> None:
    """A prediction restores the newest checkpoint."""
    chain = Chain(device_iterations=1)
    seen = chains.trained(chain)
    got = chains.predicted(chain, 4, estimator=chains.estimator(chain, seen.folder))

    want = samples(4) * seen.weights[0] * seen.weights[1]
    check.identical(actual=flat(got), expected=want, what="the predictions")


HOOKS = ("training_hooks", "evaluation_hooks", "prediction_hooks")


def test_hooks_of_the_specification_see_their_loops(programs: Programs) -> None:
    """Hooks of a specification are called after each loop of their mode, and of no other."""
    chain, seen = Chain(device_iterations=1), []
    hooks = {name: [programs.seeing()] for name in HOOKS}
    estimator = programs.estimator(chain, model_fn=programs.model_fn(chain, **hooks))
    for call in (
        lambda: estimator.train(programs.fed(chain, 2), steps=2 * chain.iterations),
        lambda: programs.evaluated(chain, 3, estimator=estimator),
        lambda: programs.predicted(chain, 4, estimator=estimator),
    ):
        call()
        seen.append([hooks[name][0].calls.count("after") for name in HOOKS])

    expected = [[2, 0, 0], [2, 3, 0], [2, 3, 1]]
    check.equal(actual=seen, expected=expected, what="the loops seen by each hook after two, three and one loops")


def test_train_and_evaluate(programs: Programs) -> None:
    """An estimator can be trained and evaluated with the function of TensorFlow."""
    chain, tf = Chain(device_iterations=1), programs.tf
    estimator = programs.estimator(chain)
    metrics, _ = tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(programs.fed(chain, 2), max_steps=2 * chain.iterations),
        tf.estimator.EvalSpec(programs.fed(chain), steps=chain.iterations, start_delay_secs=0, throttle_secs=0),
    )

    weights = programs.weights(estimator, chain)
    check_chain(weights, chain, 2)
    check_mean(metrics["loss"], samples(4) * np.prod(weights.astype(np.float64)), roundings=6)


def test_a_warm_start_begins_with_other_weights(programs: Programs, chains: Programs) -> None:
    """An estimator that is warm-started begins with the weights of another's checkpoint, at step 0."""
    chain = Chain(device_iterations=1)
    estimator = programs.estimator(chain, warm_start_from=chains.trained(chain).folder)
    got = programs.train(chain, estimator=estimator, input_fn=programs.fed(chain, skip=1))

    check_chain(got.weights, chain, 2)
    check.equal(actual=got.steps, expected=[chain.iterations], what="the global step after the warm start")


def test_training_and_evaluation_leave_reports(programs: Programs, reports: Any) -> None:
    """A training and an evaluation leave one report each."""
    chain = Chain(device_iterations=1)
    estimator = programs.estimator(chain)
    programs.train(chain, estimator=estimator)
    trained_only = reports()
    programs.evaluated(chain, estimator=estimator)

    numbers = len(trained_only), len(reports()), reports()[:1] == trained_only
    check.equal(actual=numbers, expected=(1, 2, True), what="the reports after each, and whether the first stays")
