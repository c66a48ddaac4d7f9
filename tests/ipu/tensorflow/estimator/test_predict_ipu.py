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


def products(found: List[Dict[str, Any]]) -> np.ndarray:
    """The products of predictions."""
    return np.array([each["product"] for each in found])


@pytest.mark.parametrize("loop", [1, 4])
def test_predictions_come_in_the_order_of_the_input(estimators: Estimators, loop: int) -> None:
    """The predictions of a loop come one by one, in the order of the elements."""
    found = list(estimators.make(loop=loop).predict(estimators.feed(8), num_predictions=8))

    check.identical(actual=products(found), expected=START[0] * samples(8), what="the products")
    assert [each["input"] for each in found] == samples(8).tolist()


def test_a_batch_comes_as_single_predictions(estimators: Estimators) -> None:
    """Each sample of a batch is a prediction."""
    found = list(estimators.make().predict(estimators.feed(4, 3), num_predictions=12))

    check.identical(actual=products(found), expected=START[0] * samples(12), what="the products")


def test_a_batch_may_stay_whole(estimators: Estimators) -> None:
    """With yield_single_examples=False each prediction is that of a batch."""
    found = list(estimators.make().predict(estimators.feed(4, 3), yield_single_examples=False, num_predictions=4))

    check.identical(actual=products(found), expected=START[0] * samples(12).reshape(4, 3), what="the products")


@pytest.mark.parametrize("number", [1, 3, 5])
def test_as_many_predictions_come_as_are_asked_for(estimators: Estimators, number: int) -> None:
    """num_predictions ends the predictions, also within a loop or a batch."""
    found = list(estimators.make().predict(estimators.feed(4, 2), num_predictions=number))

    check.identical(actual=products(found), expected=START[0] * samples(number), what="the products")


def test_predictions_are_endless(estimators: Estimators) -> None:
    """Without num_predictions there is always one more, as long as there is data."""
    endless = estimators.make().predict(estimators.feed(3, repeat=True))
    found = list(itertools.islice(endless, 20))
    endless.close()

    check.identical(actual=products(found), expected=START[0] * np.resize(samples(3), 20), what="the products")


@pytest.mark.parametrize("keys", [["input"], ["input", "product"]], ids=str)
def test_predictions_are_chosen_by_their_keys(estimators: Estimators, keys: List[str]) -> None:
    """Only what predict_keys names comes back."""
    found = list(estimators.make().predict(estimators.feed(2), predict_keys=keys, num_predictions=2))

    assert [sorted(each) for each in found] == [keys] * 2
    for key in keys:
        expected = {"product": START[0] * samples(2), "input": samples(2)}[key]
        check.identical(actual=np.array([each[key] for each in found]), expected=expected, what=key)


def test_unknown_keys_are_refused(estimators: Estimators) -> None:
    """predict_keys must leave something to predict."""
    with pytest.raises(ValueError, match="Expected to run at least one output"):
        next(estimators.make().predict(estimators.feed(2), predict_keys=["quotient"], num_predictions=2))


def test_predictions_may_be_a_tensor(estimators: Estimators) -> None:
    """A model function may predict one tensor: it comes without a name."""

    def model_fn(features: Any, mode: Any) -> Any:
        return estimators.spec(mode, predictions=estimators.weight() * features)

    found = list(estimators.make(model_fn).predict(estimators.feed(4, 2), num_predictions=8))

    check.identical(actual=np.array(found), expected=START[0] * samples(8), what="the products")


def test_keys_are_for_dictionaries(estimators: Estimators) -> None:
    """A tensor has no keys to choose from."""

    def model_fn(features: Any, mode: Any) -> Any:
        return estimators.spec(mode, predictions=estimators.weight() * features)

    with pytest.raises(ValueError, match="predict_keys"):
        next(estimators.make(model_fn).predict(estimators.feed(2), predict_keys=["product"], num_predictions=2))


def test_predictions_have_their_own_shapes(estimators: Estimators) -> None:
    """Predictions of any rank and type come back as they are."""

    def model_fn(features: Any, mode: Any) -> Any:
        tf = estimators.tf
        grid = features[:, None, None] * tf.reshape(tf.range(1.0, 7.0), [2, 3])
        return estimators.spec(
            mode, predictions={"grid": grid, "large": features > 2, "whole": tf.cast(features, "int32")}
        )

    found = list(estimators.make(model_fn).predict(estimators.feed(2, 2), num_predictions=4))

    grids = samples(4)[:, None, None] * np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    check.identical(actual=np.array([each["grid"] for each in found]), expected=grids, what="the grids")
    assert [bool(each["large"]) for each in found] == (samples(4) > 2).tolist()
    check.identical(
        actual=np.array([each["whole"] for each in found]), expected=samples(4).astype(np.int32), what="whole numbers"
    )


def test_the_trained_weights_predict(estimators: Estimators) -> None:
    """Predictions are made with the last checkpoint, or with the one that is named."""
    estimator = estimators.make()
    estimator.train(estimators.feed(2), steps=2)
    older = estimator.latest_checkpoint()
    estimator.train(estimators.feed(2, skip=2), steps=2)
    last = list(estimator.predict(estimators.feed(2), num_predictions=2))
    first = list(estimator.predict(estimators.feed(2), num_predictions=2, checkpoint_path=older))

    check.identical(
        actual=products(last), expected=trained(1, counts(4)).weights[0] * samples(2), what="the last products"
    )
    check.identical(
        actual=products(first), expected=trained(1, counts(2)).weights[0] * samples(2), what="the first products"
    )


def test_the_mode_is_that_of_prediction(estimators: Estimators) -> None:
    """The model function learns that it predicts, and gets no labels even if there are some."""
    found: List[Any] = []

    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        found.append((mode, labels))
        return estimators.spec(mode, predictions=estimators.weight() * features)

    def input_fn() -> Any:
        return estimators.tf.data.Dataset.from_tensor_slices((samples(2), samples(2))).batch(1, drop_remainder=True)

    list(estimators.make(model_fn).predict(input_fn, num_predictions=2))

    assert found == [("infer", None)]


def test_a_stock_spec_predicts(estimators: Estimators) -> None:
    """A model function may return the EstimatorSpec of stock TensorFlow."""

    def model_fn(features: Any, mode: Any) -> Any:
        return estimators.tf.estimator.EstimatorSpec(mode, predictions={"product": estimators.weight() * features})

    found = list(estimators.make(model_fn).predict(estimators.feed(4), num_predictions=4))

    check.identical(actual=products(found), expected=START[0] * samples(4), what="the products")
