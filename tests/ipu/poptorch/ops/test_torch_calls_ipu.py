"""Calls of torch that look at values or name a device: they mean on the device what they mean on the host."""

from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..ir.dumped import assert_counts, inference_graph
from ..lazily import functional as F
from ..lazily import poptorch, torch
from ..on_device import as_model, gradient, infer

NUMBERS = [1, 2, 5, 2]
CALLS: Dict[str, Tuple[Callable[[Any, Any], Any], Any]] = {
    "bag": (
        lambda x, table: F.embedding_bag(x % 4, table, torch.tensor([0, 2, 2, 3]), mode="sum"),
        [[9.0, 12.0], [0.0, 0.0], [3.0, 4.5], [6.0, 7.5]]),
    "bag_of_means": (
        lambda x, table: F.embedding_bag((x % 3).reshape(2, 2), table, mode="mean"), [[4.5, 6.0], [6.0, 7.5]]),
    "counted": (lambda x, table: torch.bincount(x, minlength=6), [0, 1, 2, 0, 0, 1]),
    "weighed": (
        lambda x, table: x.bincount(weights=torch.tensor([1.0, 2.0, 4.0, 8.0]), minlength=6),
        [0.0, 1.0, 10.0, 0.0, 0.0, 4.0]),
    "on_the_device": (
        lambda x, table: x.to("ipu") + torch.ones(4, dtype=x.dtype, device=torch.device("ipu"))
        + torch.full((4,), 2, device="ipu"),
        [4, 5, 8, 5]),
    # The density of a distribution whose parameters are known on the device only: log 1 inside.
    "likely": (lambda x, table: torch.distributions.Uniform(x * 1.0, x + 1.0).log_prob(x + 0.5), [0.0] * 4),
    "data": (lambda x, table: x.data * 3 + table.data[:, 1], [4.5, 10.5, 22.5, 16.5]),
}  # fmt: skip
"""Calls with four whole numbers and a table of two columns, and what they make of NUMBERS by hand."""


@pytest.mark.parametrize("name", CALLS)
def test_a_call_means_what_it_means_on_the_host(name: str) -> None:
    """Its result has the values that whole numbers give by hand."""
    call, expected = CALLS[name]
    table = torch.nn.Parameter(torch.arange(8.0).reshape(4, 2) * 1.5)
    x, result = torch.tensor(NUMBERS, dtype=torch.int32), torch.tensor(expected)

    actual = infer(poptorch, lambda model, x: call(x, model.table), x, table=table)

    assert_same(actual, result.to(torch.int32) if result.dtype == torch.int64 else result, name)


@pytest.mark.parametrize("mask", ["padding", "causal"])
def test_a_transformer_does_not_see_what_is_masked(mask: str) -> None:
    """The last of five positions changes only itself when it is masked: exp(-inf) is nothing, exactly."""
    padding = torch.tensor([[False, False, False, False, True]] * 3)

    def forward(model: Any, x: Any, padding: Any) -> Any:
        causal = torch.nn.Transformer.generate_square_subsequent_mask(5)
        if mask == "causal":
            return model.encoder(x, mask=causal)
        return model.encoder(x, src_key_padding_mask=padding)

    torch.manual_seed(5)
    layer = torch.nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).eval()
    x = torch.arange(60.0).sin().reshape(3, 5, 4)
    other = x.clone()
    other[:, 4] += 1.0
    wrapped = poptorch.inferenceModel(as_model(forward, encoder=encoder))
    first, second = wrapped(x, padding), wrapped(other, padding)

    assert_same(first[:, :4], second[:, :4], "the output at positions that do not see the last")
    check.differs(actual=first[:, 4].tolist(), other=second[:, 4].tolist(), what="the output at the last position")


CTC_LABELS, CTC_LENGTHS = [[1, 0], [2, 1]], ([1, 2], [1, 2])
"""As many steps as labels: one alignment, and what lies beyond the lengths does not count."""


@pytest.mark.parametrize("known", [True, False], ids=["lists", "tensors"])
@pytest.mark.parametrize(("reduction", "expected"), [("mean", 0.6875), ("sum", 2.0), ("none", [0.75, 1.25])])
def test_lengths_of_a_ctc_loss_may_be_tensors(reduction: str, expected: Any, known: bool) -> None:
    """The loss of one alignment is what its steps add up to; the mean is (0.75 / 1 + 1.25 / 2) / 2."""
    steps = [[[-1.0, -0.75, -2.0], [-3.0, -4.0, -5.0]], [[-1.0, -2.0, -0.25], [-3.0, -1.0, -5.0]]]
    x, labels = torch.tensor(steps), torch.tensor(CTC_LABELS)

    def loss(model: Any, x: Any, labels: Any, *lengths: Any) -> Any:
        chosen = lengths or CTC_LENGTHS
        return F.ctc_loss(x.transpose(0, 1), labels, *chosen, reduction=reduction)

    lengths = [] if known else [torch.tensor(each) for each in CTC_LENGTHS]
    assert_same(infer(poptorch, loss, x, labels, *lengths), torch.tensor(expected), "the loss")


def test_a_ctc_loss_with_lengths_trains() -> None:
    """From equal chances, a step raises those of the labels and lowers those of the blank and of other classes."""

    def loss(model: Any, x: Any, labels: Any, *lengths: Any) -> Any:
        log_probs = (x * model.weight).log_softmax(2).transpose(0, 1)
        return F.ctc_loss(log_probs, labels, *lengths, reduction="sum")

    lengths = [torch.tensor(each) for each in CTC_LENGTHS]
    change = gradient(poptorch, loss, torch.zeros(4), torch.ones(2, 2, 4), torch.tensor(CTC_LABELS), *lengths)

    check.equal(actual=change.sign().tolist(), expected=[1.0, -1.0, -1.0, 1.0], what="the signs of the gradient")


def test_a_loss_with_lengths_is_one_op() -> None:
    """In the program it is a Ctc."""

    def loss(model: Any, x: Any, lengths: Any) -> Any:
        return F.ctc_loss(x.transpose(0, 1), torch.tensor([[1, 2]]), lengths, torch.tensor([2]))

    graph = inference_graph(poptorch, as_model(loss), torch.zeros(1, 4, 3), torch.tensor([4]))

    assert_counts(graph, Ctc=1)


DEPENDENT: Dict[str, Callable[[Any], Any]] = {
    "branch": lambda x: x if x.sum() > 0 else x * 2,
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "item": lambda x: x * x.sum().item(),
    "size": lambda x: torch.zeros(int(x.sum())),
    "slice": lambda x: x[: x.sum().long()],
    "unique": lambda x: x.unique(),
}


@pytest.mark.emulator
@pytest.mark.parametrize("name", DEPENDENT)
def test_what_depends_on_values_is_refused_in_a_sentence(name: str) -> None:
    """The error is one line that says why, whatever torch's tracer made of it."""
    with check.raises(poptorch.Error, match="value of a tensor", what=name) as refused:
        infer(poptorch, lambda model, x: DEPENDENT[name](x), torch.tensor([1.0, 2.0, 3.0]))

    check.equal(actual=len(str(refused.value).splitlines()), expected=1, what="the number of lines of the error")


class UnfitError(Exception):
    """An error of a program's own."""


@pytest.mark.parametrize("error", [UnfitError, KeyError, AssertionError, ValueError])
def test_an_error_of_forward_keeps_its_type(error: Any) -> None:
    """What forward raises while the model is compiled reaches the caller as it is."""

    def forward(model: Any, x: Any) -> Any:
        raise error("too long")

    with check.raises(error, match="too long", what=f"a forward that raises {error.__name__}"):
        infer(poptorch, forward, torch.ones(2))
