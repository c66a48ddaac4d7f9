"""Slices in torch's own words whose start is a tensor: the vendor takes them where their size is a constant.

The user guide's chapter of supported operations has the rule, and says that such a slice goes on at the beginning where
torch would cut it off.
"""

from __future__ import annotations

from typing import Any

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..on_device import as_model, gradient, infer


def _values(torch: Any, *shape: int) -> Any:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


SLICES = {
    "behind": (lambda x, s: x[:, s : s + 2], lambda x, s: x[:, s : s + 2]),
    "around": (lambda x, s: x[:, s - 1 : s + 2], lambda x, s: x[:, s - 1 : s + 2]),
    "in-steps": (lambda x, s: x[:, s : s + 4 : 2], lambda x, s: x[:, s : s + 4 : 2]),
    "moved-twice": (lambda x, s: x[:, (s + 3) - 2 : 4 + s], lambda x, s: x[:, s + 1 : s + 4]),
    "last": (lambda x, s: x[..., s : s + 3], lambda x, s: x[..., s : s + 3]),
    "beside-others": (lambda x, s: x[1, None, s : s + 2, ::3], lambda x, s: x[1, None, s : s + 2, ::3]),
    "twice": (lambda x, s: x[:, s : s + 2, s + 1 : s + 3], lambda x, s: x[:, s : s + 2, s + 1 : s + 3]),
}
"""Slices at a start of the device, and the same at one that is known."""


@pytest.mark.parametrize("start", [1, 3])
@pytest.mark.parametrize("name", SLICES)
def test_a_slice_of_constant_size_begins_anywhere(poptorch: Any, torch: Any, name: str, start: int) -> None:
    """The ends of a slice are a tensor plus constants; what else stands in the index is as ever."""
    computed, known = SLICES[name]
    x = _values(torch, 2, 7, 8)
    out = infer(poptorch, lambda model, x, s: computed(x, s), x, torch.tensor([start]))

    assert_same(out, known(x, start), f"the slice at {start}")


def test_one_compiled_model_slices_at_every_start(poptorch: Any, torch: Any) -> None:
    """The start is a value, not a constant of the compiled model; beyond the end a slice goes on at the beginning."""
    x = _values(torch, 1, 5)
    inference = poptorch.inferenceModel(as_model(lambda model, x, s: x[:, s : s + 3]))

    for start, places in ((0, [0, 1, 2]), (2, [2, 3, 4]), (4, [4, 0, 1])):
        assert_same(inference(x, torch.tensor([start])), x[:, places], f"the slice from {start}")


def test_a_slice_hands_its_gradient_back(poptorch: Any, torch: Any) -> None:
    """Positions that were not sliced have no gradient."""

    def forward(model: Any, x: Any, start: Any) -> Any:
        return poptorch.identity_loss(model.weight[start : start + 2] * x, "sum")

    out = gradient(poptorch, forward, _values(torch, 5), torch.tensor([[4.0, 8.0]]), torch.tensor([3]))

    assert_same(out, torch.tensor([0.0, 0.0, 0.0, 4.0, 8.0]), "the gradient")


@pytest.mark.parametrize(
    "cut",
    [lambda x, s: x[:, s:], lambda x, s: x[:, :s], lambda x, s: x[:, s : 2 * s], lambda x, s: x[:, 1 : s + 1]],
    ids=["no-end", "no-start", "another-end", "known-start"],
)
def test_a_slice_has_a_constant_size(poptorch: Any, torch: Any, cut: Any) -> None:
    """A slice whose size depends on a value of the device is refused."""
    with check.raises(poptorch.Error, match="constant size", what="a slice of a size that is not known"):
        infer(poptorch, lambda model, x, s: cut(x, s), _values(torch, 1, 7), torch.tensor([2]))
