"""Conventions of norms and losses that frameworks disagree on, on examples with exact answers."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_conformance.oracle.op import OracleError
from ipu_conformance.oracle.ops import OPS

LOGITS = np.log(np.array([[1.0, 3.0], [3.0, 1.0], [1.0, 1.0]]))
TARGETS = np.array([1, 1, 0])


def test_momentum_is_the_weight_of_the_new_batch():
    """Running statistics move towards the batch by the momentum."""
    x = np.array([[1.0], [3.0]])
    mean, variance = OPS["batch_norm_statistics"].forward(x, np.zeros(1), np.ones(1), momentum=0.25, unbiased=True)

    assert mean.tolist() == [0.5]
    assert variance.tolist() == [0.75 + 0.25 * 2.0]


def test_biased_variance_divides_by_the_count():
    """Without the correction the variance of 1 and 3 is 1, with it 2."""
    x = np.array([[1.0], [3.0]])
    _, variance = OPS["batch_norm_statistics"].forward(x, np.zeros(1), np.zeros(1), momentum=1.0, unbiased=False)

    assert variance.tolist() == [1.0]


def test_norms_normalise_different_groups():
    """On x of shape (2, 2, 1): batch norm over the batch, layer norm over the last axis, instance norm over space."""
    x = np.array([[[1.0], [5.0]], [[3.0], [9.0]]])
    scale, bias = np.ones(2), np.zeros(2)

    assert OPS["batch_norm"].forward(x, scale, bias, epsilon=0.0).ravel().tolist() == [-1, -1, 1, 1]
    group = OPS["group_norm"].forward(x, scale, bias, groups=1, epsilon=0.0)
    assert group.ravel().tolist() == [-1, 1, -1, 1]
    assert OPS["instance_norm"].forward(x, scale, bias, epsilon=1.0).ravel().tolist() == [0, 0, 0, 0]
    layer = OPS["layer_norm"].forward(x[..., 0], scale, bias, epsilon=0.0)
    assert layer.tolist() == [[-1, 1], [-1, 1]]


def _cross_entropy(*rest: np.ndarray, **attributes: object) -> float:
    """The loss as the probability that it stands for, which these logits make rational."""
    return float(np.exp(-np.asarray(OPS["cross_entropy_loss"].forward(LOGITS, TARGETS, *rest, **attributes))))


def _same(actual: float, expected: float) -> bool:
    # Three classes' logarithms and one exponential, each within an ulp, of numbers below 8: 16 units cover them.
    return abs(actual - expected) <= 16 * 2.0**-53 * 8 * abs(expected)


def test_mean_of_cross_entropy_divides_by_the_weight_of_the_targets():
    """The weighted mean is a mean over the total weight of the target classes."""
    assert _same(_cross_entropy(reduction="sum"), 3 / 4 * 1 / 4 * 1 / 2)
    weighted = _cross_entropy(np.array([2.0, 3.0]), reduction="mean")
    assert _same(weighted, ((3 / 4 * 1 / 4) ** 3 * (1 / 2) ** 2) ** (1 / 8))


def test_ignored_targets_cost_nothing_and_do_not_count():
    """A target equal to ignore_index leaves the sum and the mean."""
    assert _same(_cross_entropy(ignore_index=0, reduction="mean"), (3 / 4 * 1 / 4) ** (1 / 2))
    values = OPS["cross_entropy_loss"].forward(LOGITS, TARGETS, ignore_index=0, reduction="none")
    assert values[2] == 0.0


def test_smoothing_spreads_a_share_over_all_classes():
    """With smoothing e, a share e of the target is spread evenly over all classes, the target's among them."""
    smoothed = _cross_entropy(label_smoothing=0.5, reduction="sum")

    assert _same(smoothed, (3 / 4) ** 0.75 * (1 / 4) ** 0.25 * (1 / 4) ** 0.75 * (3 / 4) ** 0.25 * 1 / 2)


def test_keras_divides_probabilities_by_their_sum():
    """Only with normalise are unnormalised probabilities scaled, as Keras does."""
    p, target = np.array([[1.0, 3.0]]), np.array([0])
    raw, scaled = (
        OPS["cross_entropy_of_probabilities"].forward(p, target, normalise=flag, reduction="none")
        for flag in (False, True)
    )

    assert raw.tolist() == [0.0]
    assert scaled.tolist() == [np.log(4.0)]


def test_batchmean_divides_by_the_batch():
    """The divergence's batchmean divides the sum by the first axis only."""
    x, target = np.full((2, 4), -1.0), np.ones((2, 4))
    loss = {
        reduction: float(OPS["kl_div_loss"].forward(x, target, log_target=False, reduction=reduction))  # type: ignore[arg-type]
        for reduction in ("sum", "mean", "batchmean")
    }

    assert loss == {"sum": 8.0, "mean": 1.0, "batchmean": 4.0}


def test_huber_and_smooth_l1_differ_by_their_scale():
    """Huber is delta times smooth L1 with beta = delta."""
    x, target = np.array([0.25, 3.0]), np.zeros(2)
    huber = OPS["huber_loss"].forward(x, target, delta=0.5, reduction="none")
    smooth = OPS["smooth_l1_loss"].forward(x, target, beta=0.5, reduction="none")

    assert huber.tolist() == [0.03125, 1.375]
    assert smooth.tolist() == [0.0625, 2.75]


def test_unknown_reduction_is_refused():
    """A reduction that does not exist is named together with those that do."""
    with pytest.raises(OracleError, match=r"'median'.*mean, sum, none"):
        OPS["mse_loss"].forward(np.ones(2), np.ones(2), reduction="median")
