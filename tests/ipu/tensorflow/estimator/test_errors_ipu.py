"""What an IPUEstimator refuses: model functions, input functions, and numbers of steps."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from ..exact import check_weight, counts, samples
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")


def test_a_model_function_is_needed(ipu: Any, estimators: Estimators) -> None:
    """An estimator is made of a model function."""
    with check.raises(ValueError, match="model_fn", what="an estimator without a model function"):
        ipu.ipu_estimator.IPUEstimator(model_fn=None, config=estimators.config())


def test_a_model_function_takes_known_arguments(estimators: Estimators) -> None:
    """An argument that no estimator can give is refused when the estimator is made."""
    message = r"model_fn .* has following not expected args: \['weather'\]"
    with check.raises(ValueError, match=message, what="a model function that asks for the weather"):
        estimators.make(lambda features, mode, weather: None)


@pytest.mark.parametrize("kind", ["none", "stock", "dictionary"])
def test_the_configuration_is_one_for_ipus(tf: Any, ipu: Any, estimators: Estimators, kind: str) -> None:
    """Without a RunConfig for IPUs there is no estimator for IPUs."""
    config = {"none": None, "stock": tf.estimator.RunConfig(), "dictionary": {"iterations_per_loop": 2}}[kind]

    with check.raises(ValueError, match=r"`config`.*RunConfig", what=f"a config of the kind {kind}"):
        ipu.ipu_estimator.IPUEstimator(model_fn=estimators.product(), config=config)


def labelled(e: Estimators) -> Any:
    """A model function that takes labels."""

    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        loss = e.weight() * (features - labels)
        return e.spec(mode, loss=loss, train_op=e.descent().minimize(loss))

    return model_fn


TENSOR, OPEN = "(?i)dataset", "is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`"
INPUTS: Dict[str, Tuple[str, str, Callable[[Estimators], Any]]] = {
    **{f"{mode}-a-tensor": (mode, TENSOR, lambda e: e.tf.constant([1.0])) for mode in ("train", "evaluate")},
    **{
        f"{mode}-an-open-batch": (mode, OPEN, lambda e: e.slices(samples(4))().batch(2))
        for mode in ("train", "evaluate", "predict")
    },
    "train-three-parts": ("train", "labels", lambda e: e.slices(samples(2), samples(2), samples(2))()),
    "train-labels-nobody-takes": ("train", "labels", lambda e: e.slices(samples(2), samples(2))()),
}
"""What cannot be fed: tensors, batches that may be smaller, and more parts than the model function takes."""


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_is_refused(estimators: Estimators, name: str) -> None:
    """An input function returns a data set of full batches, whose elements are features, or features and labels."""
    mode, message, data = INPUTS[name]
    estimator = estimators.make(labelled(estimators) if "three-parts" in name else None)

    with check.raises(ValueError, match=message, what=name):
        estimators.call(estimator, mode, lambda: data(estimators), 2)


def on_the_second_ipu(e: Estimators, loss: Any) -> Any:
    """A loss that is doubled elsewhere."""
    with e.ipu.scopes.ipu_shard(1):
        return 2.0 * loss


def counting(e: Estimators, loss: Any) -> Any:
    """A training that advances the global step."""
    return e.v1.train.GradientDescentOptimizer(1.0).minimize(loss, e.v1.train.get_global_step())


def mean(e: Estimators, loss: Any) -> Dict[str, Any]:
    """A metric of the loss."""
    return {"mean": e.v1.metrics.mean(loss)}


STEP, PAIR, CALL = "(?i)global.?step", "eval_metrics", "host_call"
SPECIFIED: Dict[str, Tuple[str, Any, str, Dict[str, Any]]] = {
    "minimize-counts-steps": ("train", ValueError, STEP, {"train_op": counting}),
    "assign_add-counts-steps": (
        "train", ValueError, STEP, {"train_op": lambda e, loss: e.v1.train.get_global_step().assign_add(1)},
    ),
    "v1-counts-steps": (
        "train", ValueError, STEP,
        {"train_op": lambda e, loss: e.v1.assign_add(e.v1.train.get_or_create_global_step(), 2)},
    ),
    "train-without-loss": ("train", ValueError, "(?i)loss", {"loss": None}),
    "train-without-train_op": ("train", ValueError, "(?i)train_op", {"train_op": None}),
    "evaluate-without-loss": ("evaluate", ValueError, "(?i)loss", {"loss": None, "eval_metrics": None}),
    "evaluate-without-metrics": ("evaluate", ValueError, "eval_metric_ops", {"eval_metrics": None}),
    "predict-without-predictions": ("predict", ValueError, "(?i)predictions", {}),
    "three-losses": ("train", ValueError, "Loss must be scalar", {"loss": lambda e, loss: loss * [1.0, 2.0, 3.0]}),
    "more-ipus-than-num_shards": ("evaluate", ValueError, "num_shards", {"loss": on_the_second_ipu}),
    "metrics-listed": ("evaluate", TypeError, PAIR, {"eval_metrics": [1.0, 2.0]}),
    "metrics-text": ("evaluate", TypeError, PAIR, {"eval_metrics": "mean"}),
    "metrics-named": ("evaluate", TypeError, PAIR, {"eval_metrics": {"mean": 1.0}}),
    "metrics-of-no-list": ("evaluate", TypeError, PAIR, {"eval_metrics": (min, 1.0)}),
    "metrics-of-three": ("evaluate", ValueError, PAIR, {"eval_metrics": (min, [1.0], [2.0])}),
    "metrics-of-both-kinds": (
        "evaluate", ValueError, "eval_metric_ops.*eval_metrics|eval_metrics.*eval_metric_ops",
        {"eval_metrics": lambda e, loss: (functools.partial(mean, e), [loss]), "eval_metric_ops": mean},
    ),
    "host_call-text": ("train", TypeError, CALL, {"host_call": "function"}),
    "host_call-listed": ("train", TypeError, CALL, {"host_call": [1.0]}),
    "host_call-of-no-function": ("train", TypeError, CALL, {"host_call": (1.0, [1.0])}),
    "host_call-named": ("train", TypeError, CALL, {"host_call": (min, {"a": 1.0})}),
    "host_call-of-three": ("train", ValueError, CALL, {"host_call": (min, [1.0], [2.0])}),
    "host_call-returns-nothing": ("train", TypeError, CALL, {"host_call": (lambda: None, [])}),
    "host_call-returns-a-number": ("train", TypeError, CALL, {"host_call": (lambda: 3.0, [])}),
    "host_call-without-train_op": (
        "train", ValueError, "train_op", {"train_op": None, "host_call": lambda e, loss: (e.tf.identity, [loss])},
    ),
    "host_call-in-loops-of-2": (
        "train", ValueError, "host_call.*iterations_per_loop",
        {"host_call": lambda e, loss: (e.tf.add, [1.0, 2.0])},
    ),
}  # fmt: skip
"""The mode, the error with a word of it, and the fields that differ from those of a model that trains.

Counting steps is the estimator's. Errors of eval_metrics and host_call are those of the vendor's ipu_estimator.py.
"""


@pytest.mark.parametrize("name", SPECIFIED)
def test_a_specification_is_refused(estimators: Estimators, name: str) -> None:
    """A model function returns what its mode needs, of the right kinds, and counts no steps."""
    mode, error, message, changes = SPECIFIED[name]

    def model_fn(features: Any, mode: Any) -> Any:
        loss = estimators.loss(features)
        made = {key: field(estimators, loss) if callable(field) else field for key, field in changes.items()}
        return estimators.spec(mode, **{"loss": loss, "train_op": estimators.descent().minimize(loss), **made})

    loop = 1 if name.startswith("host_call") and "loops" not in name else 2
    with check.raises(error, match=message, what=f"{mode}: {name}"):
        estimators.call(estimators.make(model_fn, loop=loop), mode, estimators.feed(2), 2)


@pytest.mark.parametrize("returned", [None, {"loss": 1.0}, (1.0, 2.0)], ids=str)
def test_a_model_function_returns_a_spec(estimators: Estimators, returned: Any) -> None:
    """What is neither kind of EstimatorSpec is refused."""
    with check.raises(ValueError, match="EstimatorSpec", what=f"a model function that returns {returned}"):
        estimators.make(lambda features, mode: returned).train(estimators.feed(2), steps=2)


def test_the_global_step_may_be_read(estimators: Estimators) -> None:
    """To look at the global step, for a rate that decays, is not to change it."""

    def train(loss: Any) -> Any:
        step = estimators.tf.cast(estimators.v1.train.get_global_step(), "float32")
        return estimators.v1.train.GradientDescentOptimizer(2.0**-7 + 0.0 * step).minimize(loss)

    left = estimators.train(4, model_fn=estimators.trains(train=train))

    check.equal(actual=left.step, expected=4, what="the global step")
    check_weight(left.weight, counts(4))


CALLS: Dict[str, Tuple[str, Any, str, Dict[str, Any]]] = {
    "train-both": ("train", ValueError, "both steps and max_steps", {"steps": 2, "max_steps": 2}),
    "train-0-steps": ("train", ValueError, "Must specify steps > 0", {"steps": 0}),
    "train-minus-2-steps": ("train", ValueError, "Must specify steps > 0", {"steps": -2}),
    "train-0-max_steps": ("train", ValueError, "Must specify max_steps > 0", {"max_steps": 0}),
    "train-no-hook": ("train", TypeError, "SessionRunHook", {"steps": 2, "hooks": ["hook"]}),
    "evaluate-endless": ("evaluate", ValueError, "steps", {}),
    "evaluate-0-steps": ("evaluate", ValueError, "steps > 0", {"steps": 0}),
    "evaluate-minus-2-steps": ("evaluate", ValueError, "steps > 0", {"steps": -2}),
    "predict-0": ("predict", ValueError, "num_predictions", {"num_predictions": 0}),
    "predict-minus-1": ("predict", ValueError, "num_predictions", {"num_predictions": -1}),
    "predict-an-unknown-key": (
        "predict", ValueError, "Expected to run at least one output", {"predict_keys": ["quotient"]},
    ),
}  # fmt: skip
"""Numbers of steps and of predictions that are not positive, and other arguments that lead to nothing."""


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_refused(estimators: Estimators, name: str) -> None:
    """Steps are positive and end, hooks are SessionRunHooks, and something is predicted."""
    mode, error, message, settings = CALLS[name]
    call = functools.partial(getattr(estimators.make(), mode), estimators.feed(2), **settings)
    with check.raises(error, match=message, what=f"{mode} with {settings}"):
        next(call()) if mode == "predict" else call()  # a generator that lives on would keep its graph


@pytest.mark.parametrize("mode", ["train", "evaluate"])
@pytest.mark.parametrize(("steps", "loop"), [(1, 2), (3, 2), (6, 4)])
def test_steps_are_whole_loops(estimators: Estimators, mode: str, steps: int, loop: int) -> None:
    """A number of steps that is not a multiple of iterations_per_loop is refused before anything is built."""
    estimator = estimators.make(loop=loop)
    message = rf"steps \({steps}\) must be a multiple of iterations_per_loop \({loop}\)"

    with check.raises(ValueError, match=message, what=f"{mode} for {steps} steps in loops of {loop}"):
        getattr(estimator, mode)(estimators.feed(8), steps=steps)
    check.equal(actual=estimators.checkpoints(estimator), expected=[], what="the steps of the checkpoints")


def test_an_estimator_that_raised_can_be_used_again(estimators: Estimators) -> None:
    """A refusal leaves nothing behind."""
    estimator = estimators.make()
    with check.raises(ValueError, match="must be a multiple", what="training for a loop and a half"):
        estimator.train(estimators.feed(3), steps=3)
    estimator.train(estimators.feed(2), steps=2)

    estimators.check_left(estimator, 2)


@pytest.mark.emulator
@pytest.mark.parametrize(("elements", "loop"), [(3, 2), (2, 4)])
def test_data_that_end_within_a_loop_are_an_error(estimators: Estimators, elements: int, loop: int) -> None:
    """A device that is left without data would wait forever: the training does not end as if all were well."""
    estimator = estimators.make(loop=loop)

    what = f"training with {elements} elements in loops of {loop}"
    with check.raises(RuntimeError, match="ended in the middle of a loop", what=what):
        estimator.train(estimators.feed(elements), steps=4)
