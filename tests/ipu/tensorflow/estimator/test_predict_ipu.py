"""IPUEstimator.predict: what comes, in which order, and when it ends."""

from __future__ import annotations

import itertools
from typing import Any, Dict, List

import numpy as np
import pytest

from ipu_conformance import check

from ..exact import START, counts, samples, trained
from .programs import Estimators

pytestmark = pytest.mark.requires("tensorflow_estimator")


def predicted(estimators: Estimators, number: int, batches: int, size: int = 1, **settings: Any) -> List[Any]:
    """So many predictions of a new estimator, and one more if it comes; batches of a size are fed again and again."""
    estimator, fed = estimators.make(settings.pop("model_fn", None)), estimators.feed(batches, size, repeat=True)
    return list(itertools.islice(estimator.predict(fed, num_predictions=number, **settings), number + 1))


def check_products(predictions: List[Dict[str, Any]], expected: np.ndarray) -> None:
    """The products of predictions are those expected, bit by bit."""
    __tracebackhide__ = True
    check.identical(actual=np.array([each["product"] for each in predictions]), expected=expected, what="the products")


@pytest.mark.parametrize("loop", [1, 4])
def test_predictions_come_in_the_order_of_the_input(shared: Estimators, loop: int) -> None:
    """The predictions of a loop come one by one, in the order of the elements."""
    predictions = shared.call(shared.make(loop=loop), "predict", shared.feed(8), 8)

    check_products(predictions, START[0] * samples(8))
    elements = np.array([each["input"] for each in predictions])
    check.identical(actual=elements, expected=samples(8), what="the elements that come with the predictions")


def test_a_batch_may_stay_whole(estimators: Estimators) -> None:
    """With yield_single_examples=False each prediction is that of a batch."""
    whole = predicted(estimators, 4, 4, 3, yield_single_examples=False)

    check_products(whole, START[0] * samples(12).reshape(4, 3))


@pytest.mark.parametrize(("number", "size"), [(1, 2), (3, 2), (5, 2), (12, 3)])
def test_as_many_predictions_come_as_are_asked_for(estimators: Estimators, number: int, size: int) -> None:
    """Each sample of a batch is a prediction, and num_predictions ends them, also within a loop or a batch."""
    check_products(predicted(estimators, number, 4, size), START[0] * samples(number))


def test_predictions_are_endless(estimators: Estimators) -> None:
    """Without num_predictions there is always one more, as long as there is data."""
    endless = estimators.make().predict(estimators.feed(3, repeat=True))
    first = list(itertools.islice(endless, 20))
    endless.close()

    check_products(first, START[0] * np.resize(samples(3), 20))


@pytest.mark.parametrize("keys", [["input"], ["input", "product"]], ids=str)
def test_predictions_are_chosen_by_their_keys(estimators: Estimators, keys: List[str]) -> None:
    """Only what predict_keys names comes back."""
    predictions = predicted(estimators, 2, 2, predict_keys=keys)

    check.equal(actual=[sorted(each) for each in predictions], expected=[keys] * 2, what="the keys of predictions")
    for key in keys:
        expected = {"product": START[0] * samples(2), "input": samples(2)}[key]
        check.identical(actual=np.array([each[key] for each in predictions]), expected=expected, what=key)


def test_predictions_may_be_a_tensor(estimators: Estimators) -> None:
    """A model function may predict one tensor: it comes without a name, and has no keys to choose from."""
    model_fn = estimators.predicts(lambda features: estimators.weight() * features)
    predictions = predicted(estimators, 8, 4, 2, model_fn=model_fn)

    check.identical(actual=np.array(predictions), expected=START[0] * samples(8), what="the products")
    with check.raises(ValueError, match="predict_keys", what="predict_keys for a tensor"):
        predicted(estimators, 2, 2, model_fn=model_fn, predict_keys=["product"])


def test_predictions_have_their_own_shapes(estimators: Estimators) -> None:
    """Predictions of any rank and type come back as they are."""

    def shapes(features: Any) -> Any:
        tf = estimators.tf
        grid = features[:, None, None] * tf.reshape(tf.range(1.0, 7.0), [2, 3])
        return {"grid": grid, "large": features > 2, "whole": tf.cast(features, "int32")}

    predictions = predicted(estimators, 4, 2, 2, model_fn=estimators.predicts(shapes))

    grids = samples(4)[:, None, None] * np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    grid, large, whole = (np.array([each[key] for each in predictions]) for key in ("grid", "large", "whole"))
    check.identical(actual=grid, expected=grids, what="the grids")
    check.identical(actual=large, expected=samples(4) > 2, what="the truth values")
    check.identical(actual=whole, expected=samples(4).astype(np.int32), what="whole numbers")


def test_the_trained_weights_predict(estimators: Estimators) -> None:
    """Predictions are made with the last checkpoint, or with the one that is named."""
    estimator = estimators.after(2)
    older = estimator.latest_checkpoint()
    estimator.train(estimators.feed(2, skip=2), steps=2)
    last = list(estimator.predict(estimators.feed(2), num_predictions=2))
    first = list(estimator.predict(estimators.feed(2), num_predictions=2, checkpoint_path=older))

    check_products(last, trained(1, counts(4)).weights[0] * samples(2))
    check_products(first, trained(1, counts(2)).weights[0] * samples(2))


def test_the_mode_is_that_of_prediction(estimators: Estimators) -> None:
    """The model function learns that it predicts, and gets no labels even if there are some."""
    arguments: List[Any] = []

    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        arguments.append((mode, labels))
        return estimators.spec(mode, predictions=estimators.weight() * features)

    def input_fn() -> Any:
        return estimators.slices(samples(2), samples(2))().batch(1, drop_remainder=True)

    list(estimators.make(model_fn).predict(input_fn, num_predictions=2))

    check.equal(actual=arguments, expected=[("infer", None)], what="the mode and labels that the model function gets")


def test_a_stock_spec_predicts(estimators: Estimators) -> None:
    """A model function may return the EstimatorSpec of stock TensorFlow."""

    def model_fn(features: Any, mode: Any) -> Any:
        return estimators.tf.estimator.EstimatorSpec(mode, predictions={"product": estimators.weight() * features})

    check_products(predicted(estimators, 4, 4, model_fn=model_fn), START[0] * samples(4))
