"""Buffers: updated in place on the device, by one replica or by each for itself, and never replaced."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import assert_same, counts


def buffered(poptorch: Any, change: Callable[[Any, Any], Any]) -> Any:
    """A model with a weight and a buffer; ``change`` is called with the model and the input."""
    import torch

    class Buffered(torch.nn.Module):
        """Scales, and lets its buffer be changed."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
            self.register_buffer("held", torch.zeros(2))

        def forward(self, x: Any) -> Any:
            change(self, x)
            out = x * self.weight
            return out + self.held * 0, poptorch.identity_loss((out - 1).abs(), reduction="sum")

    return Buffered()


UPDATES: Dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda model, x: model.held.add_(x.sum(dim=0).detach()),
    "copy_": lambda model, x: model.held.copy_(model.held + x.sum(dim=0).detach()),
    "+=": lambda model, x: model.held.__iadd__(x.sum(dim=0).detach()),
    "slice": lambda model, x: model.held[:].add_(x.sum(dim=0).detach()),
}


@pytest.mark.parametrize("name", sorted(UPDATES))
@pytest.mark.parametrize("config", [counts(2, 3, 1), counts(4, 1, 2)], ids=counts_id)
def test_a_buffer_is_updated_in_place(poptorch: Any, config: RunConfig, name: str) -> None:
    """A buffer sums up what its replica saw; the host gets that of the first replica."""
    model, x = buffered(poptorch, UPDATES[name]), exact.batch(config, 2)
    made = exact.options(poptorch, config).broadcastBuffers(False)
    trainer = poptorch.trainingModel(model, made, exact.sgd(model))

    trainer(x)

    first = x.reshape(config.device_iterations * config.gradient_accumulation, config.replicas, 2, 2)[:, 0]
    assert_same(model.held.clone(), first.sum(dim=(0, 1)), "buffer")


@pytest.mark.parametrize("name", sorted(UPDATES))
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_replicas_may_not_update_a_shared_buffer(poptorch: Any, name: str, training: bool) -> None:
    """With several replicas and broadcast buffers an update is an error when compiling."""
    config = counts(3, 1, 2)
    model = buffered(poptorch, UPDATES[name])
    made = exact.options(poptorch, config)
    executor = (
        poptorch.trainingModel(model, made, exact.sgd(model)) if training else poptorch.inferenceModel(model, made)
    )

    with pytest.raises(poptorch.Error, match="broadcastBuffers"):
        executor(exact.batch(config))


def test_batch_norm_with_replicas_needs_buffers_of_its_own(poptorch: Any, torch: Any) -> None:
    """The running statistics of batch norm are buffers like any other."""

    class Normed(torch.nn.Module):
        """Batch norm and a loss."""

        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)

        def forward(self, x: Any) -> Any:
            return poptorch.identity_loss(self.norm(x), reduction="sum")

    config, model = counts(1, 3, 2), Normed()
    made = exact.options(poptorch, config)

    with pytest.raises(poptorch.Error, match="broadcastBuffers"):
        poptorch.trainingModel(model, made, exact.sgd(model))(exact.batch(config, 2))


def test_batch_norm_in_eval_mode_changes_no_buffer(poptorch: Any, torch: Any) -> None:
    """In eval mode statistics are only read, so replicas may share them."""
    model, x = torch.nn.BatchNorm1d(2).eval(), exact.samples(8)

    out = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(2).deviceIterations(4))(x)

    # One kernel call on 1 sample at a time divides as the host does on 8.
    assert_same(out, model(x).detach(), "output")


REPLACED: Dict[str, Callable[[Any, Any], Any]] = {
    "buffer-reassigned": lambda model, x: setattr(model, "held", model.held + 1),
    "parameter-reassigned": lambda model, x: setattr(model, "weight", _parameter(model.weight * 2)),
    "buffer-removed": lambda model, x: delattr(model, "held"),
    "parameter-removed": lambda model, x: delattr(model, "weight"),
}


def _parameter(value: Any) -> Any:
    import torch

    return torch.nn.Parameter(value)


@pytest.mark.parametrize("name", sorted(REPLACED))
def test_replacing_a_weight_in_forward_is_refused(poptorch: Any, torch: Any, name: str) -> None:
    """The device holds the tensors that the model had; another one in their place, or none, is an error."""

    class Replaced(torch.nn.Module):
        """Replaces something after using it."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))
            self.register_buffer("held", torch.zeros(2))

        def forward(self, x: Any) -> Any:
            out = x * self.weight + self.held
            REPLACED[name](self, x)
            return out

    model = poptorch.inferenceModel(Replaced())

    with pytest.raises(poptorch.Error):
        model(exact.samples(1))


def test_named_buffers_can_be_sent_alone(poptorch: Any, torch: Any) -> None:
    """copyNamedBuffersToDevice sends the buffers that the option lists and leaves the weights alone."""

    class Offset(torch.nn.Module):
        """Adds two buffers."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sent", torch.zeros(2))
            self.register_buffer("kept", torch.zeros(2))

        def forward(self, x: Any) -> Any:
            return x + self.sent + self.kept

    model, x = Offset(), exact.samples(1)
    inference = poptorch.inferenceModel(model, poptorch.Options().updatableNamedBuffers(["sent"]))
    inference(x)
    model.sent.fill_(2.0)
    model.kept.fill_(8.0)

    inference.copyNamedBuffersToDevice()

    assert_same(inference(x), x + 2, "output")


@pytest.mark.parametrize("names", [[], ["nothing"]], ids=["none", "unknown"])
def test_named_buffers_must_be_named(poptorch: Any, names: Any) -> None:
    """Without the option, or with a name that the model does not have, there is nothing to send."""
    inference = poptorch.inferenceModel(
        exact.scale(poptorch, loss=False), poptorch.Options().updatableNamedBuffers(names)
    )
    inference(exact.samples(1))

    with pytest.raises(poptorch.Error):
        inference.copyNamedBuffersToDevice()


def test_a_buffer_that_is_read_only_is_the_same_everywhere(poptorch: Any, torch: Any) -> None:
    """A constant buffer needs nothing, whatever the replicas."""
    model = exact.scale(poptorch, loss=False)
    model.register_buffer("table", torch.tensor([0.5, 0.25]))
    original = model.forward
    model.forward = lambda x: original(x) * model.table
    x = exact.samples(8)

    out = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(4).deviceIterations(2))(x)

    assert_same(out, x * torch.tensor([0.5, -0.5]), "output")
