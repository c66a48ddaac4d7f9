"""Slices in torch's own words whose start is a tensor: the vendor takes them where their size is a constant.

The user guide's chapter of supported operations has the rule, and says that such a slice goes on at the beginning where
torch would cut it off.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model, gradient, infer


def _values(*shape: int) -> Any:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


SLICES: Dict[str, Callable[[Any, Any], Any]] = {
    "behind": lambda x, s: x[:, s : s + 2],
    "around": lambda x, s: x[:, s - 1 : s + 2],
    "in-steps": lambda x, s: x[:, s : s + 4 : 2],
    "moved-twice": lambda x, s: x[:, (s + 3) - 2 : 4 + s],
    "last": lambda x, s: x[..., s : s + 3],
    "beside-others": lambda x, s: x[1, None, s : s + 2, ::3],
    "twice": lambda x, s: x[:, s : s + 2, s + 1 : s + 3],
}
"""Slices whose start is a tensor on the device, and a whole number on the host."""


@pytest.mark.parametrize("start", [1, 3])
@pytest.mark.parametrize("name", SLICES)
def test_a_slice_of_constant_size_begins_anywhere(name: str, start: int) -> None:
    """The ends of a slice are a tensor plus constants; what else stands in the index is as ever."""
    x = _values(2, 7, 8)
    out = infer(poptorch, lambda model, x, s: SLICES[name](x, s), x, torch.tensor([start]))

    assert_same(out, SLICES[name](x, start), f"the slice at {start}")


WORDS: Dict[str, Callable[[Any, Any, int], Any]] = {
    "index": lambda x, start, size: x[..., start : start + size],
    "dynamic_slice": lambda x, start, size: poptorch.dynamic_slice(x, -1, start, size, 1),
}


@pytest.mark.parametrize("word", WORDS)
def test_one_compiled_model_slices_at_every_start(word: str) -> None:
    """The start is a value, not a constant of the compiled model; beyond the end a slice goes on at the beginning."""
    x = _values(1, 5)
    inference = poptorch.inferenceModel(as_model(lambda model, x, s: WORDS[word](x, s, 3)))

    for start, places in ((0, [0, 1, 2]), (2, [2, 3, 4]), (4, [4, 0, 1])):
        assert_same(inference(x, torch.tensor([start])), x[:, places], f"the slice from {start}")


@pytest.mark.parametrize("word", WORDS)
def test_a_slice_hands_its_gradient_back(word: str) -> None:
    """Positions that were not sliced have no gradient."""

    def forward(model: Any, x: Any, start: Any) -> Any:
        return poptorch.identity_loss(WORDS[word](model.weight, start, 2) * x, "sum")

    out = gradient(poptorch, forward, _values(5), torch.tensor([[4.0, 8.0]]), torch.tensor([3]))

    assert_same(out, torch.tensor([0.0, 0.0, 0.0, 4.0, 8.0]), "the gradient")
