"""Models in half precision."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check
from ipu_conformance.run import RunConfig

from ...training import counts_id
from .. import exact
from ..exact import assert_same, counts
from ..lazily import poptorch, torch
from ..on_device import as_model


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


LAYERS: Dict[str, Callable[[], Any]] = {
    "product": lambda: exact.scale(poptorch, loss=False).half(),
    "linear": lambda: torch.nn.Linear(2, 3).half(),
    "conv": lambda: torch.nn.Sequential(torch.nn.Unflatten(1, (1, 2)), torch.nn.Conv1d(1, 2, 2)).half(),
    "norm": lambda: torch.nn.LayerNorm(2).half(),
    "softmax": lambda: torch.nn.Softmax(dim=1),
    "float weights": lambda: as_model(
        lambda model, x: (x.float() * model.weight).half(), weight=torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    ),
}
"""Models of float16, and one that casts its input to the type of its weights and back."""


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_in_half(poptorch: Any, torch: Any, kind: str) -> None:
    """Inputs and outputs are float16; common layers run in it by the same kernels as on the host."""
    torch.manual_seed(1)
    model, config = LAYERS[kind](), counts(3, 1, 2)
    x = exact.batch(config, 2).half()

    out = poptorch.inferenceModel(model, exact.options(poptorch, config))(x)

    parts = [model(part).detach() for part in x.chunk(config.micro_batches)]
    assert_same(out, torch.cat(parts), "output")
