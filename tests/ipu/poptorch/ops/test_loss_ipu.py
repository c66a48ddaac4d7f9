"""Which loss a training model is trained by."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from .. import exact
from ..exact import assert_same

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
    import torch

    class Model(torch.nn.Module):
        """Scales and applies the loss."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))

        def forward(self, x: Any) -> Any:
            return loss(x * self.weight)

    return Model()


def step_of(model: Any, x: Any, pick: Callable[[Any], Any] = lambda returned: returned) -> Any:
    """The weight after one plain step of gradient descent on the host."""
    loss = pick(model(x))
    loss.backward()
    weight = model.weight.detach() - exact.RATE * model.weight.grad
    model.weight.grad = None
    return weight


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_of_torch_is_a_loss(poptorch: Any, torch: Any, name: str) -> None:
    """A loss of torch needs no mark; the device takes the step that the host would take, by the same kernels."""
    model, x = model_of(lambda out: LOSSES[name](torch.nn.functional, out)), exact.samples(4)
    expected = step_of(model, x)
    trainer = poptorch.trainingModel(model, optimizer=exact.sgd(model))

    loss = trainer(x)

    assert loss.dim() == 0
    assert_same(model.weight.detach(), expected, "weight")


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_identity_loss_marks_a_loss_of_ones_own(poptorch: Any, reduction: str) -> None:
    """Any expression is a loss once it is marked, with the reduction of the mark."""
    model = model_of(lambda out: poptorch.identity_loss((out - 1).abs(), reduction=reduction))
    x = exact.samples(2)
    expected = step_of(model, x)
    trainer = poptorch.trainingModel(model, optimizer=exact.sgd(model))

    trainer(x)

    assert_same(model.weight.detach(), expected, "weight")


def test_training_without_a_loss_is_refused(poptorch: Any) -> None:
    """A model that computes no loss cannot be trained."""
    model = model_of(lambda out: out.sum())
    trainer = poptorch.trainingModel(model, optimizer=exact.sgd(model))

    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph!"):
        trainer(exact.samples(1))


def test_two_losses_are_refused(poptorch: Any) -> None:
    """Of two losses that do not depend on one another neither is the one."""
    import torch.nn.functional as F

    model = model_of(lambda out: (F.l1_loss(out, out * 0), F.mse_loss(out, out * 0)))
    trainer = poptorch.trainingModel(model, optimizer=exact.sgd(model))

    with pytest.raises(poptorch.Error, match="Multiple independent losses found"):
        trainer(exact.samples(1))


def test_a_sum_of_losses_is_marked(poptorch: Any) -> None:
    """Two losses that feed a marked one are parts of it."""
    import torch.nn.functional as F

    model = model_of(lambda out: poptorch.identity_loss(F.l1_loss(out, out * 0) + F.mse_loss(out, out * 0 + 1), "none"))
    x = exact.samples(2)
    expected = step_of(model, x)
    trainer = poptorch.trainingModel(model, optimizer=exact.sgd(model))

    trainer(x)

    assert_same(model.weight.detach(), expected, "weight")


def test_the_loss_need_not_be_returned(poptorch: Any) -> None:
    """A model that returns only its output trains by the loss that it computes."""
    import torch.nn.functional as F

    def only_output(out: Any) -> Any:
        F.l1_loss(out, out.detach() * 0 + 1)
        return out

    model, x = model_of(only_output), exact.samples(2)
    expected = step_of(model_of(lambda out: F.l1_loss(out, out.detach() * 0 + 1)), x)
    trainer = poptorch.trainingModel(model, optimizer=exact.sgd(model))

    out = trainer(x)

    assert out.shape == x.shape
    assert_same(model.weight.detach(), expected, "weight")


def test_what_follows_the_loss_is_not_trained_by(poptorch: Any) -> None:
    """Doubling a loss after it was computed changes what is returned, not the step."""
    import torch.nn.functional as F

    model, x = model_of(lambda out: F.l1_loss(out, out.detach() * 0) * 2), exact.samples(2)
    expected = step_of(model_of(lambda out: F.l1_loss(out, out.detach() * 0)), x)
    trainer = poptorch.trainingModel(model, optimizer=exact.sgd(model))

    trainer(x)

    assert_same(model.weight.detach(), expected, "weight")


def test_inference_needs_no_loss(poptorch: Any) -> None:
    """Any number of losses, or none, is fine for inference."""
    import torch.nn.functional as F

    x = exact.samples(2)
    for loss in (lambda out: out, lambda out: (F.l1_loss(out, out * 0), F.mse_loss(out, out * 0))):
        poptorch.inferenceModel(model_of(loss))(x)


def test_a_loss_module_is_a_loss(poptorch: Any, torch: Any) -> None:
    """A loss of torch.nn inside the model is found like its function."""
    criterion = torch.nn.CrossEntropyLoss(reduction="sum")
    model, x = model_of(lambda out: criterion(out, torch.ones(3, dtype=torch.int64))), exact.samples(3)
    expected = step_of(model, x)
    trainer = poptorch.trainingModel(model, optimizer=exact.sgd(model))

    trainer(x)

    assert_same(model.weight.detach(), expected, "weight")


def test_a_loss_for_every_sample_is_refused(poptorch: Any) -> None:
    """The final loss is a single value."""
    import torch.nn.functional as F

    model = model_of(lambda out: F.l1_loss(out, out * 0, reduction="none"))
    trainer = poptorch.trainingModel(model, optimizer=exact.sgd(model))

    with pytest.raises(poptorch.Error):
        trainer(exact.samples(2))
