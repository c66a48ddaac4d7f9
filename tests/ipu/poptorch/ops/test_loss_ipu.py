"""Which loss a training model is trained by."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from .. import exact
from ..exact import assert_same
from ..lazily import functional as F
from ..lazily import poptorch, torch
from ..on_device import as_model

LOSSES: Dict[str, Callable[[Any], Any]] = {
    "l1": lambda out: F.l1_loss(out, out.detach() * 0 + 1),
    "mse": lambda out: F.mse_loss(out, out.detach() * 0 + 1),
    "smooth_l1": lambda out: F.smooth_l1_loss(out, out.detach() * 0 + 1),
    "huber": lambda out: F.huber_loss(out, out.detach() * 0 + 1),
    "cross_entropy": lambda out: F.cross_entropy(out, out.detach().argmin(dim=1)),
    "nll": lambda out: F.nll_loss(F.log_softmax(out, dim=1), out.detach().argmin(dim=1)),
    "kl_div": lambda out: F.kl_div(F.log_softmax(out, 1), F.softmax(out.detach() * 2, 1), reduction="batchmean"),
    "poisson_nll": lambda out: F.poisson_nll_loss(out, out.detach().abs()),
    "bce": lambda out: F.binary_cross_entropy(out.sigmoid(), out.detach() * 0 + 0.25),
    "bce_with_logits": lambda out: F.binary_cross_entropy_with_logits(out, out.detach() * 0 + 0.25),
    "soft_margin": lambda out: F.soft_margin_loss(out, out.detach().sign()),
    "hinge_embedding": lambda out: F.hinge_embedding_loss(out, out.detach().sign()),
    "triplet": lambda out: F.triplet_margin_loss(out, out * 2, out * 3),
    "cosine_embedding": lambda out: F.cosine_embedding_loss(out, out * out, out[:, 0].detach().sign()),
    "module": lambda out: torch.nn.CrossEntropyLoss(reduction="sum")(out, torch.ones(4, dtype=torch.int64)),
    "marked-sum": lambda out: poptorch.identity_loss((out - 1).abs(), reduction="sum"),
    "marked-mean": lambda out: poptorch.identity_loss((out - 1).abs(), reduction="mean"),
    "marked-two-losses": lambda out: poptorch.identity_loss(
        F.l1_loss(out, out * 0) + F.mse_loss(out, out * 0 + 1), "none"
    ),
}
BESIDE: Dict[str, Callable[[Any], Any]] = {
    "doubled": lambda out: LOSSES["l1"](out) * 2,
    "not-returned": lambda out: (LOSSES["l1"](out), out)[1],
}
"""What a model returns that computes the l1 loss, and something else from it or beside it."""


def model_of(loss: Callable[[Any], Any]) -> Any:
    """A model with one weight that returns what ``loss`` makes of its output."""
    return as_model(lambda model, x: loss(x * model.weight), weight=torch.nn.Parameter(torch.tensor([1.0, -2.0])))


def assert_trains_by(loss: Callable[[Any], Any], by: Callable[[Any], Any]) -> None:
    """The device returns what ``loss`` gives on the host, and takes the host's step by the loss ``by``."""
    __tracebackhide__ = True
    host, x = model_of(by), exact.samples(4)
    host(x).backward()
    trainer, model = exact.trainer(poptorch, model=model_of(loss))

    returned = trainer(x)

    assert_same(model.weight, host.weight - exact.RATE * host.weight.grad, "the weight after one step")
    assert_same(returned, model_of(loss)(x), "what the call returns")


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_of_torch_is_a_loss(name: str) -> None:
    """A loss of torch needs no mark, any expression is one once it is marked; the step is that of the same kernels."""
    assert_trains_by(LOSSES[name], by=LOSSES[name])


@pytest.mark.parametrize("name", BESIDE)
def test_what_follows_the_loss_is_not_trained_by(name: str) -> None:
    """What becomes of a loss after it was computed changes what is returned, not the step."""
    assert_trains_by(BESIDE[name], by=LOSSES["l1"])


REFUSED: Dict[str, Tuple[Callable[[Any], Any], str]] = {
    "none": (lambda out: out.sum(), "Couldn't find a loss in graph!"),
    "two": (lambda out: (F.l1_loss(out, out * 0), F.mse_loss(out, out * 0)), "Multiple independent losses found"),
    "one-for-every-sample": (lambda out: F.l1_loss(out, out * 0, reduction="none"), ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_training_needs_one_loss_of_one_value(name: str) -> None:
    """No loss, two losses that do not depend on one another, and a loss for every sample are refused."""
    loss, error = REFUSED[name]
    trainer, _ = exact.trainer(poptorch, model=model_of(loss))

    with check.raises(poptorch.Error, match=error, what=f"training by losses: {name}"):
        trainer(exact.samples(2))


def test_inference_needs_no_loss() -> None:
    """Any number of losses, or none, is fine for inference."""
    two, _ = REFUSED["two"]

    for losses in (lambda out: (out,), two):
        model = model_of(losses)
        for out, expected in zip(poptorch.inferenceModel(model)(exact.samples(2)), model(exact.samples(2))):
            assert_same(out, expected, "the output")
