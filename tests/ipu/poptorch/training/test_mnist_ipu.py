"""The digits workload trains on the device as its native twin does."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest

from ipu_conformance import check, frameworks
from ipu_conformance.oracle.tolerance.runs import LEAST_RUNS, ArrayTolerance
from ipu_conformance.workloads.poptorch_mnist import Settings
from ipu_conformance.workloads.poptorch_mnist.reference import ACCURACY, LOSS
from ipu_conformance.workloads.reference import Reference, verdict

from ...training import native_reference
from ...training.executed import told_by
from ..lazily import torch

LEARNS = Settings(epochs=1, train_size=800, test_size=160)
SHORT = Settings(
    epochs=2, train_size=126, test_size=33, batch_size=3, test_batch_size=11, device_iterations=7, dropout=0.0
)
"""Two epochs of six calls, with factors that differ from one another and no randomness on the device."""
ONCE = replace(SHORT, epochs=1, train_size=SHORT.combined_batch)
"""One call of the device."""


def train(settings: Settings) -> Any:
    """A run of the workload."""
    from ipu_conformance.workloads.poptorch_mnist.training import train as run

    return run(settings, native=False)


def test_a_short_run_learns(trained: Any) -> None:
    """After one pass the loss is lower than any model's that ignores the images."""
    from ipu_conformance.data import load

    losses = trained(LEARNS).losses
    last, start = (
        float(np.mean(call)) for call in (losses[-LEARNS.device_iterations :], losses[: LEARNS.device_iterations])
    )
    labels = load(LEARNS.data, train=LEARNS.train_size, test=0).train.labels
    shares = np.bincount(labels) / len(labels)

    # The best model that does not look at the images has the entropy of the labels as its mean loss.
    blind = -sum(share * math.log(share) for share in shares if share)
    check.holds(last < blind, f"the loss ends at {last}, no lower than {blind} of a model that looks at no image")
    check.holds(last < start, f"the loss ends at {last}, no lower than the {start} that it began with")


def test_the_evaluation_finds_what_training_learnt(trained: Any) -> None:
    """The inference model, which runs after training has left the device, beats the most frequent label."""
    from ipu_conformance.data import load

    labels = load(LEARNS.data, train=0, test=LEARNS.test_size).test.labels

    accuracy, frequent = trained(LEARNS).accuracies[-1], np.bincount(labels).max() / len(labels)
    check.holds(accuracy > frequent, f"the accuracy is {accuracy}, the most frequent label alone gives {frequent}")


def reordered(weights: Dict[str, Any], seed: int, *, back: bool = False) -> Dict[str, Any]:
    """The weights of a network that computes the same with its hidden units in another order, or back."""
    random = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(units, generator=random) for units in (32, 64, 128)]
    first, second, third = (torch.argsort(order) if back else order for order in orders)
    hidden = weights["hidden.weight"].reshape(128, 64, 25)[third][:, second].reshape(128, 1600)
    return {
        "block1.convolution.weight": weights["block1.convolution.weight"][first],
        "block1.convolution.bias": weights["block1.convolution.bias"][first],
        "block2.convolution.weight": weights["block2.convolution.weight"][second][:, first],
        "block2.convolution.bias": weights["block2.convolution.bias"][second],
        "hidden.weight": hidden,
        "hidden.bias": weights["hidden.bias"][third],
        "classifier.weight": weights["classifier.weight"][:, third],
        "classifier.bias": weights["classifier.bias"],
    }


def native_run(settings: Settings, dtype: str, order: int = -1) -> Tuple[np.ndarray, ...]:
    """The losses, final test scores, scores of training and final weights of the native twin.

    It runs in a precision and with an order of hidden units.
    """
    from ipu_conformance.workloads.poptorch_mnist import model, trainers

    torch.manual_seed(settings.seed)
    network = model.Network(settings.dropout)
    if order >= 0:
        network.load_state_dict(reordered(network.state_dict(), order))
    network.to(getattr(torch, dtype))
    side = trainers.NativeTrainer(network, settings)
    training, test = model.datasets(settings)
    loader, taken = side.training_batches(training), []
    for _ in range(settings.epochs):
        for images, labels in loader:
            taken.append(side.train(images.to(getattr(torch, dtype)), labels))
    side.stop_training()
    trained = network.state_dict()
    weights = reordered(trained, order, back=True) if order >= 0 else trained
    scores, losses = (torch.cat(values) for values in zip(*taken))
    tests = side.classify(test.tensors[0].to(getattr(torch, dtype)))
    arrays = (losses, tests, scores, *(weights[name] for name in sorted(weights)))
    return tuple(value.detach().double().numpy() for value in arrays)


@functools.lru_cache(maxsize=None)
def noise(settings: Settings) -> List[Tuple[np.ndarray, ArrayTolerance]]:
    """Losses, scores and weights (``native_run``) in float64, each with the tolerance that float32 needs.

    The deviations are those of float32 runs whose hidden units stand in other orders: the same mathematics with other
    roundings.
    """
    exact = native_run(settings, "float64")
    plain = native_run(settings, "float32")
    runs = [native_run(settings, "float32", order) for order in range(LEAST_RUNS)]
    return native_reference(exact, plain, runs, "hidden units")


def on_device(settings: Settings) -> Tuple[Any, Any, Any, Any]:
    """A seeded network, its trainer on the device, and the sets of training and of tests."""
    from ipu_conformance.workloads.poptorch_mnist import model, trainers

    torch.manual_seed(settings.seed)
    network = model.Network(settings.dropout)
    training, test = model.datasets(settings)
    return network, trainers.IpuTrainer(network, settings), training, test


def test_the_device_trains_as_its_native_twin(trained: Any) -> None:
    """Batch by batch the losses are those of plain torch on the same batches, from the same initial weights."""
    expected, tolerance = noise(SHORT)[0]
    losses = np.asarray(trained(SHORT).losses, np.float32)

    check.close(actual=losses, expected=expected, tolerance=tolerance, what="the loss of each batch")


def test_the_executed_dumps_are_what_the_device_did(torch: Any) -> None:
    """Losses, scores and weights of a call, and the scores of tests with them, are those of the compiled models."""
    network, side, training, test = on_device(ONCE)
    held = {name: value.clone().numpy() for name, value in network.state_dict().items()}
    images, labels = next(iter(side.training_batches(training)))
    frameworks.observe("poptorch", side.training_model)
    scores, losses = side.train(images, labels)
    frameworks.trace("poptorch", side.training_model, 1, "poptorch-mnist")
    counts = (ONCE.device_iterations, 1, 1)
    told = told_by(frameworks.ir("poptorch", side.training_model), held, [images.numpy(), labels.numpy()], counts)
    side.stop_training()
    tests = torch.cat([side.classify(part) for part, _ in side.test_batches(test)]).numpy()
    fed = test.tensors[0].numpy()
    calls = (len(fed) // ONCE.test_batch_size, 1, 1)
    classified = told_by(frameworks.ir("poptorch", side.inference_model), told.variables, [fed], calls).outputs

    names = sorted(held)
    rows = {
        "the losses": (losses.numpy(), told.losses),
        "the scores of tests": (tests, classified),
        "the scores": (scores.numpy(), told.outputs),
        **{name: (network.state_dict()[name].numpy(), told.variables[name]) for name in names},
    }
    for (what, (returned, expected)), (_, tolerance) in zip(rows.items(), noise(ONCE)):
        check.close(actual=returned, expected=expected.reshape(returned.shape), tolerance=tolerance, what=what)


def test_the_trained_weights_are_those_of_the_native_twin(torch: Any, trained: Any) -> None:
    """After training, the weights on the host classify the test set with the native twin's scores."""
    from ipu_conformance.workloads.poptorch_mnist import model

    network = model.Network(SHORT.dropout).eval()
    network.load_state_dict(trained(SHORT).network.state_dict())
    expected, tolerance = noise(SHORT)[1]
    with torch.no_grad():
        scores = network(model.datasets(SHORT)[1].tensors[0]).numpy()

    check.close(actual=scores, expected=expected, tolerance=tolerance, what="the scores of the test set")


def test_the_inference_model_gives_the_scores_of_the_trained_weights(torch: Any) -> None:
    """What the device classifies after training, in two models that take turns on it, is what the native twin gives."""
    _, side, training, test = on_device(SHORT)
    loader = side.training_batches(training)
    scores: List[np.ndarray] = []
    for _ in range(SHORT.epochs):
        for images, labels in loader:
            side.train(images, labels)
        side.stop_training()
        check.holds(not side.training_model.isAttachedToDevice(), "the training model is still attached")
        scores = [side.classify(images).numpy() for images, _ in side.test_batches(test)]
        check.holds(side.inference_model.isAttachedToDevice(), "the inference model is not attached")
    expected, tolerance = noise(SHORT)[1]

    check.close(actual=np.concatenate(scores), expected=expected, tolerance=tolerance, what="the scores on the device")


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_seed_makes_a_run_repeatable(dropout: float) -> None:
    """The same seed gives the same bits, dropout included; another one does not."""
    settings = replace(SHORT, epochs=1, train_size=SHORT.combined_batch, dropout=dropout)
    first, again = train(settings), train(settings)
    other = train(replace(settings, seed=settings.seed + 1))

    check.equal(actual=again.losses, expected=first.losses, what="the losses of the same seed")
    check.differs(actual=other.losses, other=first.losses, what="the losses of another seed")


def test_dropout_is_for_training_only(torch: Any) -> None:
    """Dropout changes the losses of a call from the first batch on, and the classification of no sample."""
    _, side, training, test = on_device(replace(SHORT, dropout=0.5))
    _, plain, _, _ = on_device(SHORT)
    images, labels = (tensor[: SHORT.combined_batch] for tensor in training.tensors)
    side.inference_model.eval()
    once, twice = side.classify(test.tensors[0]), side.classify(test.tensors[0])
    side.inference_model.detachFromDevice()
    with_dropout, without = side.train(images, labels)[1], plain.train(images, labels)[1]

    check.identical(actual=twice.numpy(), expected=once.numpy(), what="the scores of a second call")
    check.differs(actual=float(with_dropout[0]), other=float(without[0]), what="the first loss with dropout")


@pytest.mark.parametrize(
    ("reference", "seeds"), [(LOSS, (1000, 1001, 1002)), (ACCURACY, (1000,))], ids=["loss", "accuracy"]
)
def test_the_workload_converges_like_its_baseline(reference: Reference, seeds: Tuple[int, ...]) -> None:
    """The values of runs with new seeds lie in the band of the native runs at each epoch, neither below nor above."""
    outcome = verdict(reference, [train(replace(reference.settings, seed=seed)) for seed in seeds])

    check.holds(outcome.passed, outcome.sentence)
