"""Which loss a training model is trained by."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from .. import exact
from ..exact import assert_same
from ..lazily import torch
from ..on_device import as_model

LOSSES: Dict[str, Callable[[Any, Any], Any]] = {
    "l1": lambda F, out: F.l1_loss(out, out.detach() * 0 + 1),
    "mse": lambda F, out: F.mse_loss(out, out.detach() * 0 + 1),
    "smooth_l1": lambda F, out: F.smooth_l1_loss(out, out.detach() * 0 + 1),
    "huber": lambda F, out: F.huber_loss(out, out.detach() * 0 + 1),
    "cross_entropy": lambda F, out: F.cross_entropy(out, out.detach().argmin(dim=1)),
    "nll": lambda F, out: F.nll_loss(F.log_softmax(out, dim=1), out.detach().argmin(dim=1)),
    "kl_div": lambda F, out: F.kl_div(F.log_softmax(out, 1), F.softmax(out.detach() * 2, 1), reduction="batchmean"),
    "poisson_nll": lambda F, out: F.poisson_nll_loss(out, out.detach().abs()),
    "bce": lambda F, out: F.binary_cross_entropy(out.sigmoid(), out.detach() * 0 + 0.25),
    "bce_with_logits": lambda F, out: F.binary_cross_entropy_with_logits(out, out.detach() * 0 + 0.25),
    "soft_margin": lambda F, out: F.soft_margin_loss(out, out.detach().sign()),
    "hinge_embedding": lambda F, out: F.hinge_embedding_loss(out, out.detach().sign()),
    "triplet": lambda F, out: F.triplet_margin_loss(out, out * 2, out * 3),
    "cosine_embedding": lambda F, out: F.cosine_embedding_loss(out, out * out, out[:, 0].detach().sign()),
}


def model_of(loss: Callable[[Any], Any]) -> Any:
    """A model with one weight that returns what ``loss`` makes of its output."""
    return as_model(lambda model, x: loss(x * model.weight), weight=torch.nn.Parameter(torch.tensor([1.0, -2.0])))


def assert_trains_by(poptorch: Any, loss: Callable[[Any], Any], by: Callable[[Any], Any], samples: int = 2) -> None:
    """The device returns what ``loss`` gives on the host, and takes the host's step by the loss ``by``."""
    __tracebackhide__ = True
    host, x = model_of(by), exact.samples(samples)
    host(x).backward()
    trainer, model = exact.trainer(poptorch, model=model_of(loss))

    returned = trainer(x)

    assert_same(model.weight, host.weight - exact.RATE * host.weight.grad, "the weight after one step")
    assert_same(returned, model_of(loss)(x), "what the call returns")


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_of_torch_is_a_loss(poptorch: Any, torch: Any, name: str) -> None:
    """A loss of torch needs no mark; the device takes the step that the host would take, by the same kernels."""

    def loss(out: Any) -> Any:
        return LOSSES[name](torch.nn.functional, out)

    assert_trains_by(poptorch, loss, loss, samples=4)


MARKED: Dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda poptorch, F, out: poptorch.identity_loss((out - 1).abs(), reduction="sum"),
    "mean": lambda poptorch, F, out: poptorch.identity_loss((out - 1).abs(), reduction="mean"),
    "two-losses": lambda poptorch, F, out: poptorch.identity_loss(
        F.l1_loss(out, out * 0) + F.mse_loss(out, out * 0 + 1), "none"
    ),
}


@pytest.mark.parametrize("name", MARKED)
def test_identity_loss_marks_a_loss_of_ones_own(poptorch: Any, torch: Any, name: str) -> None:
    """Any expression is a loss once it is marked, with the reduction of the mark; losses that feed it are its parts."""

    def loss(out: Any) -> Any:
        return MARKED[name](poptorch, torch.nn.functional, out)

    assert_trains_by(poptorch, loss, loss)


def test_what_follows_the_loss_is_not_trained_by(poptorch: Any, torch: Any) -> None:
    """Doubling a loss after it was computed changes what is returned, not the step."""

    def loss(out: Any) -> Any:
        return torch.nn.functional.l1_loss(out, out.detach() * 0)

    assert_trains_by(poptorch, lambda out: loss(out) * 2, by=loss)


def test_a_loss_module_is_a_loss(poptorch: Any, torch: Any) -> None:
    """A loss of torch.nn inside the model is found like its function."""
    criterion = torch.nn.CrossEntropyLoss(reduction="sum")

    def loss(out: Any) -> Any:
        return criterion(out, torch.ones(3, dtype=torch.int64))

    assert_trains_by(poptorch, loss, loss, samples=3)


REFUSED: Dict[str, Tuple[Callable[[Any, Any], Any], str]] = {
    "none": (lambda F, out: out.sum(), "Couldn't find a loss in graph!"),
    "two": (lambda F, out: (F.l1_loss(out, out * 0), F.mse_loss(out, out * 0)), "Multiple independent losses found"),
    "one-for-every-sample": (lambda F, out: F.l1_loss(out, out * 0, reduction="none"), ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_training_needs_one_loss_of_one_value(poptorch: Any, torch: Any, name: str) -> None:
    """No loss, two losses that do not depend on one another, and a loss for every sample are refused."""
    loss, error = REFUSED[name]
    trainer, _ = exact.trainer(poptorch, model=model_of(lambda out: loss(torch.nn.functional, out)))

    with check.raises(poptorch.Error, match=error, what=f"training by losses: {name}"):
        trainer(exact.samples(2))


def test_the_loss_need_not_be_returned(poptorch: Any, torch: Any) -> None:
    """A model that returns only its output trains by the loss that it computes."""

    def loss(out: Any) -> Any:
        return torch.nn.functional.l1_loss(out, out.detach() * 0 + 1)

    def only_output(out: Any) -> Any:
        loss(out)
        return out

    assert_trains_by(poptorch, only_output, by=loss)


def test_inference_needs_no_loss(poptorch: Any, torch: Any) -> None:
    """Any number of losses, or none, is fine for inference."""
    two, _ = REFUSED["two"]

    for losses in (lambda out: (out,), lambda out: two(torch.nn.functional, out)):
        model = model_of(losses)
        for out, expected in zip(poptorch.inferenceModel(model)(exact.samples(2)), model(exact.samples(2))):
            assert_same(out, expected, "the output")
