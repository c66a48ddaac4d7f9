"""Models in half precision."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import assert_same, counts
from ..on_device import as_model


@pytest.mark.parametrize("config", [counts(3, 1, 2), counts(2, 1, 4)], ids=counts_id)
def test_inference_in_half(poptorch: Any, config: RunConfig) -> None:
    """Inputs, weights and outputs are float16."""
    model, x = exact.scale(poptorch, loss=False).half(), exact.batch(config).half()

    out = poptorch.inferenceModel(model, exact.options(poptorch, config))(x)

    assert_same(out, model(x).detach(), "output")


@pytest.mark.parametrize("config", [counts(1, 4, 2), counts(1, 2, 4), counts(1, 8, 1)], ids=counts_id)
def test_training_in_half(poptorch: Any, torch: Any, config: RunConfig) -> None:
    """A float16 weight is updated by the mean gradient of |x w - 1|, rounded at the end, and stays float16."""
    x = exact.batch(config).half()
    trainer, model = exact.trainer(poptorch, config, model=exact.scale(poptorch).half())
    start = model.weight.detach().double()
    gradient = (torch.sign(x.double() * start - 1) * x.double()).sum(dim=0) / config.micro_batches

    _, losses = trainer(x)

    check.equal(actual=losses.dtype, expected=torch.float16, what="the type of the losses")
    assert_same(model.weight.detach(), (start - exact.RATE * gradient).half(), "weight")
    trainer.detachFromDevice()
    kinds = {value.dtype for value in model.state_dict().values()}
    check.equal(actual=kinds, expected={torch.float16}, what="the types on the host")


@pytest.mark.parametrize(("scaling", "moved"), [(1.0, False), (1024.0, True)])
def test_loss_scaling_saves_small_gradients(poptorch: Any, torch: Any, scaling: float, moved: bool) -> None:
    """A gradient of 2^-26 is zero in float16; scaled by 2^10 on the way back it arrives."""
    tiny = 2.0**-13
    model = as_model(
        lambda model, x: poptorch.identity_loss(((model.weight * x) * tiny).sum(), reduction="none"),
        weight=torch.nn.Parameter(torch.zeros(1, dtype=torch.float16)),
    )
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0, loss_scaling=scaling, use_combined_accum=False)
    # The step is applied in float32 and stored in float16: a rate of 2^20 brings 2^-26 into its range.
    optimizer.param_groups[0]["lr"] = 2.0**20

    poptorch.trainingModel(model, poptorch.Options(), optimizer)(torch.full((1, 1), tiny, dtype=torch.float16))

    check.equal(actual=model.weight.item(), expected=-(2.0**-6) if moved else 0.0, what="the weight")


def test_a_half_input_meets_float_weights(poptorch: Any, torch: Any) -> None:
    """Casting inside the model is the user's: float16 in, float32 computed, float16 out."""
    weight = torch.tensor([1.0, -2.0])
    model = as_model(lambda model, x: (x.float() * model.weight).half(), weight=torch.nn.Parameter(weight))
    x = exact.samples(3).half()

    assert_same(poptorch.inferenceModel(model)(x), model(x).detach(), "output")


@pytest.mark.parametrize("kind", ["linear", "conv", "norm", "softmax"])
def test_layers_in_half(poptorch: Any, torch: Any, kind: str) -> None:
    """Common layers run in float16 by the same kernels as on the host."""
    torch.manual_seed(1)
    model: Any = {
        "linear": torch.nn.Linear(2, 3),
        "conv": torch.nn.Sequential(torch.nn.Unflatten(1, (1, 2)), torch.nn.Conv1d(1, 2, 2)),
        "norm": torch.nn.LayerNorm(2),
        "softmax": torch.nn.Softmax(dim=1),
    }[kind].half()
    x = exact.samples(4).half()

    out = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(2))(x)

    parts = [model(part).detach() for part in x.chunk(2)]
    assert_same(out, torch.cat(parts), "output")
