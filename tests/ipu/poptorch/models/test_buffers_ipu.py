"""Buffers: updated in place on the device, by one replica or by each for itself, and never replaced."""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import assert_same, counts
from ..lazily import torch
from ..on_device import as_model

UPDATES: Dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda model, x: model.held.add_(x.sum(dim=0).detach()),
    "copy_": lambda model, x: model.held.copy_(model.held + x.sum(dim=0).detach()),
    "+=": lambda model, x: model.held.__iadd__(x.sum(dim=0).detach()),
    "slice": lambda model, x: model.held[:].add_(x.sum(dim=0).detach()),
    "data": lambda model, x: model.held.data.add_(x.sum(dim=0).detach()),
    "addcmul_": lambda model, x: model.held.addcmul_(torch.ones(2), x.sum(dim=0).detach()),
    "out": lambda model, x: torch.add(model.held, x.sum(dim=0).detach(), out=model.held),
}
UNDOCUMENTED = ("addcmul_", "out")
"""Ways of torch that no document of PopTorch names."""


NAMES = [pytest.param(name, marks=[pytest.mark.emulator] * (name in UNDOCUMENTED)) for name in sorted(UPDATES)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("config", [counts(2, 3, 1), counts(4, 1, 2)], ids=counts_id)
def test_a_buffer_is_updated_in_place(poptorch: Any, config: RunConfig, name: str) -> None:
    """A buffer sums up what its replica saw; the host gets that of the first replica."""
    x = exact.batch(config, 2)
    options = exact.options(poptorch, config).broadcastBuffers(False)
    model = exact.scale(poptorch, first=UPDATES[name], held=torch.zeros(2))
    trainer, _ = exact.trainer(poptorch, chosen=options, model=model)

    trainer(x)

    first = x.reshape(config.device_iterations * config.gradient_accumulation, config.replicas, 2, 2)[:, 0]
    assert_same(model.held, first.sum(dim=(0, 1)), "the buffer of replica 0")


def test_a_buffer_of_whole_numbers_counts(poptorch: Any) -> None:
    """Whole numbers of either sign are counted on the device and come back to the host, call after call."""
    step = torch.tensor([1, -2, 2**24 + 1])
    model = exact.scale(
        poptorch, first=lambda model, x: model.held.add_(step.to(x.device)), held=torch.zeros_like(step)
    )
    trainer, _ = exact.trainer(poptorch, counts(2, 3, 1), model=model)
    for calls in range(1, 4):
        trainer(exact.batch(counts(2, 3, 1)))

        assert_same(model.held, 6 * calls * step, f"the buffer after {calls} calls")


@pytest.mark.parametrize("name", [*NAMES, "batch norm"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_replicas_may_not_update_a_shared_buffer(poptorch: Any, torch: Any, name: str, training: bool) -> None:
    """With several replicas and broadcast buffers an update is an error when compiling, of running statistics too."""
    config, update = counts(3, 1, 2), UPDATES.get(name, lambda model, x: model.norm(x))
    model = exact.scale(poptorch, first=update, held=torch.zeros(2))
    if name == "batch norm":
        model.norm = torch.nn.BatchNorm1d(2)
    if training:
        executor, _ = exact.trainer(poptorch, config, model=model)
    else:
        executor = poptorch.inferenceModel(model, exact.options(poptorch, config))

    with check.raises(poptorch.Error, match="broadcastBuffers", what=f"{name} on a buffer that replicas share"):
        executor(exact.batch(config, 2))


REPLACED: Dict[str, Callable[[Any, Any], Any]] = {
    "buffer-reassigned": lambda torch, model: setattr(model, "held", model.held + 1),
    "parameter-reassigned": lambda torch, model: setattr(model, "weight", torch.nn.Parameter(model.weight * 2)),
    "buffer-removed": lambda torch, model: delattr(model, "held"),
    "parameter-removed": lambda torch, model: delattr(model, "weight"),
}


@pytest.mark.parametrize("name", sorted(REPLACED))
def test_replacing_a_weight_in_forward_is_refused(poptorch: Any, torch: Any, name: str) -> None:
    """The device holds the tensors that the model had; another one in their place, or none, is an error."""

    def forward(model: Any, x: Any) -> Any:
        out = x * model.weight + model.held
        REPLACED[name](torch, model)
        return out

    model = as_model(forward, weight=torch.nn.Parameter(torch.ones(2)))
    model.register_buffer("held", torch.zeros(2))

    with check.raises(poptorch.Error, what=f"a forward with its {name}"):
        poptorch.inferenceModel(model)(exact.samples(1))


def _sending(poptorch: Any, names: Sequence[str]) -> Any:
    """An inference model of the sum of three buffers, after a run, with the option that lists these names."""
    model = as_model(lambda model, x: x + model.sent + model.kept + model.also)
    for name in ("sent", "kept", "also"):
        model.register_buffer(name, torch.zeros(2))
    inference = poptorch.inferenceModel(model, poptorch.Options().updatableNamedBuffers(names))
    inference(exact.samples(1))
    return inference


def test_named_buffers_can_be_sent_alone(poptorch: Any) -> None:
    """copyNamedBuffersToDevice sends the buffers that the option lists and leaves the weights alone."""
    inference = _sending(poptorch, ["sent", "also"])
    for name, value in {"sent": 2.0, "kept": 8.0, "also": 16.0}.items():
        getattr(inference, name).fill_(value)

    inference.copyNamedBuffersToDevice()

    assert_same(inference(exact.samples(1)), exact.samples(1) + 18, "the output")


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), (["nothing"], ""), pytest.param(["sent"], "sent", marks=pytest.mark.emulator)],
    ids=["none", "unknown", "reshaped"],
)
def test_named_buffers_must_be_named(poptorch: Any, names: Any, text: str) -> None:
    """Without the option, or with a name that the model does not have or that has another shape, nothing is sent."""
    inference = _sending(poptorch, names)
    inference.model.sent = torch.ones(1)

    with check.raises(poptorch.Error, match=text, what=f"copyNamedBuffersToDevice with the names {names}"):
        inference.copyNamedBuffersToDevice()


def _table() -> Any:
    model = as_model(lambda model, x: x * model.table)
    model.register_buffer("table", torch.tensor([0.5, -0.5]))
    return model


ALIKE: Dict[str, Callable[[], Any]] = {
    "a constant buffer": _table,
    "batch norm in eval mode": lambda: torch.nn.BatchNorm1d(2).eval(),
    "bool": lambda: as_model(lambda model, x: x > 0),
    "int32": lambda: as_model(lambda model, x: (x > 0).int()),
}
"""Models that only read their buffers, and that return truth values and whole numbers."""


@pytest.mark.parametrize("what", ALIKE)
def test_replicas_infer_as_the_host(poptorch: Any, what: str) -> None:
    """Replicas may share buffers that are only read, and outputs of four replicas have the type and bits of the host's.

    One kernel call on 1 sample at a time divides as the host does on 12.
    """
    model, x = ALIKE[what](), exact.samples(12)

    out = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(4).deviceIterations(3))(x)

    assert_same(out, model(x), "the output of all replicas")


@pytest.mark.parametrize("how", ["copyWeightsToDevice", "load_state_dict"])
def test_every_replica_has_what_the_host_sends(poptorch: Any, torch: Any, how: str) -> None:
    """After a change on the host all four replicas compute with the new weight, buffer and whole number."""
    weight, x = torch.nn.Parameter(torch.tensor([0.5, 2.0])), exact.samples(12)
    model = as_model(lambda model, x: x * model.weight + model.shift + model.count.to(x.dtype), weight=weight)
    model.register_buffer("shift", torch.tensor([1.0, 3.0]))
    model.register_buffer("count", torch.tensor([7, 11], dtype=torch.int32))
    inference = poptorch.inferenceModel(model, poptorch.Options().replicationFactor(4).deviceIterations(3))
    inference(x)
    state = {name: value * 4 for name, value in model.state_dict().items()}

    if how == "load_state_dict":
        inference.load_state_dict(state)
    else:
        model.load_state_dict(state)
        inference.copyWeightsToDevice()

    assert_same(inference(x), x * state["weight"] + state["shift"] + state["count"], "the output of all replicas")
