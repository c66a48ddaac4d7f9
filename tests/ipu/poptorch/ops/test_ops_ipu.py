"""The operations that PopTorch adds: their values, their gradients and what they refuse.

Numbers are small multiples of powers of two, so that every result is exact in float32 and compared bit for bit.
"""

from __future__ import annotations

from typing import Any, Dict, Sequence

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model, gradient, infer


def _values(*shape: int) -> Any:
    count = int(torch.tensor(shape).prod())
    return ((torch.arange(count, dtype=torch.float32) * 7) % 11 - 5).reshape(shape) * 0.25


# identity_loss


@pytest.mark.parametrize(("reduction", "share"), [("sum", 1.0), ("mean", 0.125), ("none", 1.0)])
def test_identity_loss_sends_ones_back(reduction: str, share: float) -> None:
    """The gradient of a sum, or of a loss as it is, is one; that of a mean is one over the number of elements."""
    x, weight = _values(2, 4), _values(4)

    def forward(model: Any, x: Any) -> Any:
        product = x * model.weight
        return poptorch.identity_loss(product.sum() if reduction == "none" else product, reduction)

    model = as_model(forward, weight=torch.nn.Parameter(weight.clone()))
    loss = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), lr=1.0))(x)

    assert_same(loss, (x * weight).sum() * share, f"a loss of reduction {reduction}")
    assert_same(weight - model.weight, x.sum(0) * share, f"the gradient of a loss of reduction {reduction}")


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_identity_loss_works_on_the_host(reduction: str) -> None:
    """Outside the device it reduces as torch does, and its gradient flows."""
    x = _values(3).requires_grad_()
    poptorch.identity_loss(x, reduction).sum().backward()

    assert_same(x.grad, torch.full((3,), 1 / 3 if reduction == "mean" else 1.0), "the gradient on the host")


# ipu_print_tensor


def _printed(capfd: Any) -> str:
    return "".join(capfd.readouterr())


def test_a_tensor_is_printed_when_it_is_computed(capfd: Any) -> None:
    """The value is printed below its title at every run, and passed on unchanged."""
    model = as_model(lambda model, x: poptorch.ipu_print_tensor(x + 1, "after adding") * 2)
    inference = poptorch.inferenceModel(model)
    inference.compile(torch.zeros(1, 2))
    check.lacks(actual=_printed(capfd), unexpected="after adding", what="what compiling prints")

    for value in (20.0, 30.0, 50.0):
        out = inference(torch.tensor([[value, 7.0]]))
        assert_same(out, torch.tensor([[2 * value + 2, 16.0]]), "the output")
        printed = _printed(capfd)
        check.equal(actual=printed.count("after adding"), expected=1, what="the number of titles printed in a run")
        check.contains(actual=printed, expected=f"{value + 1:g}", what="what a run prints")


def test_every_micro_batch_is_printed(capfd: Any) -> None:
    """Two replicas of three device iterations print six times, once for each micro-batch."""
    x = _values(6, 1) + 10
    options = poptorch.Options().deviceIterations(3).replicationFactor(2)
    infer(poptorch, lambda model, x: poptorch.ipu_print_tensor(x, "micro") * 2, x, options=options)
    lines = [line for line in _printed(capfd).splitlines() if "micro" in line]

    check.equal(actual=len(lines), expected=6, what="the number of titles printed")
    for value in x.flatten().tolist():
        check.contains(actual="\n".join(lines), expected=f"{value:g}", what="the printed lines")


def test_a_print_that_nobody_uses_is_optimized_away(capfd: Any) -> None:
    """The result of a print must be used."""

    def forward(model: Any, x: Any) -> Any:
        poptorch.ipu_print_tensor(x + 1, "unused")
        return x * 2

    infer(poptorch, forward, _values(1, 2))

    check.lacks(actual=_printed(capfd), unexpected="unused", what="what a run prints")


@pytest.mark.parametrize("wanted", [True, False])
def test_the_gradient_is_printed_too(capfd: Any, wanted: bool) -> None:
    """In training the gradient of the tensor is printed as well, unless it is not wanted; it is not changed."""
    x, weight = torch.tensor([[3.0, 5.0]]), torch.tensor([1.0, 1.0])

    def forward(model: Any, x: Any) -> Any:
        product = poptorch.ipu_print_tensor(x * model.weight, "product", print_gradient=wanted)
        return poptorch.identity_loss(product * 16, "sum")

    assert_same(gradient(poptorch, forward, weight, x), x[0] * 16, "the gradient")
    printed = _printed(capfd)
    actual, expected = (printed.count("product"), "16" in printed), (2 if wanted else 1, wanted)
    check.equal(actual=actual, expected=expected, what="the number of titles, and whether the gradient is printed")


def _print(x: Any, **settings: Any) -> None:
    """Print a tensor on the device."""
    infer(poptorch, lambda model, x: poptorch.ipu_print_tensor(x, **settings) * 2, x)


def test_long_tensors_are_summarised(capfd: Any) -> None:
    """Above the threshold only the items at the edges are printed."""
    _print(torch.arange(40.0).reshape(1, 40), title="long", summarise_threshold=10, edge_items=2)
    printed = _printed(capfd)
    for text in ("...", "38", "39"):
        check.contains(actual=printed, expected=text, what="the printed text of 40 values")
    check.lacks(actual=printed, unexpected="20", what="the printed text of 40 values")


def test_brackets_separators_and_digits_can_be_chosen(capfd: Any) -> None:
    """The text of a printed tensor follows the settings."""
    settings = {"digits": 3, "float_format": "fixed", "separator": ",", "open_bracket": "(", "close_bracket": ")"}
    _print(torch.tensor([[1.5, -2.25]]), title="styled", **settings)

    check.contains(actual="".join(_printed(capfd).split()), expected="((1.50,-2.25))", what="the printed text")


@pytest.mark.emulator
def test_whole_numbers_are_printed_in_full(capfd: Any) -> None:
    """A float format is one of fractions: no digit of an integer is left out."""
    _print(torch.tensor([[1234567, -2147483645]], dtype=torch.int32), title="whole")
    printed = _printed(capfd)

    for text in ("1234567", "-2147483645"):
        check.contains(actual=printed, expected=text, what="the printed text")


def test_nothing_is_printed_on_the_host(capfd: Any) -> None:
    """Outside the device the tensor is passed on."""
    x = _values(2, 2)

    assert_same(poptorch.ipu_print_tensor(x, "host"), x, "the result on the host")
    check.lacks(actual=_printed(capfd), unexpected="host", what="what the host prints")


# Operations that change no value


MARKS: Dict[str, Sequence[float]] = {"nop": (), "recomputationCheckpoint": (), "set_available_memory": (0.3,)}


@pytest.mark.parametrize("name", MARKS)
def test_marks_change_neither_values_nor_gradients(name: str) -> None:
    """What only tells the compiler something passes values and gradients on."""
    x = _values(3, 4)

    def mark(x: Any) -> Any:
        return getattr(poptorch, name)(x, *MARKS[name])

    def loss(model: Any, x: Any) -> Any:
        return poptorch.identity_loss(mark(x * model.weight) * 2, "sum")

    assert_same(infer(poptorch, lambda model, x: mark(x * 2) + 1, x), x * 2 + 1, "the output")
    assert_same(mark(x), x, "the result on the host")
    assert_same(gradient(poptorch, loss, _values(4), x), x.sum(0) * 2, "the gradient")


def _overlapped(x: Any, place: str) -> Any:
    """Three times ``x`` and one more, with the transfer of the input or of the output overlapped."""
    mark, mode = getattr(poptorch, f"set_overlap_for_{place}"), poptorch.OverlapMode.OverlapAccumulationLoop
    return mark(x, mode) * 3 + 1 if place == "input" else mark(x * 3 + 1, mode)


@pytest.mark.parametrize("place", ["input", "output"])
def test_overlap_changes_neither_values_nor_gradients(place: str) -> None:
    """A transfer that overlaps with computation moves the same values."""
    x = _values(3, 4)

    def loss(model: Any, x: Any) -> Any:
        out = x * model.weight
        out = out * 2 if place == "output" else _overlapped(x, place) * model.weight
        marked = _overlapped(out, place) if place == "output" else out
        return marked, poptorch.identity_loss(marked, "sum")

    slope = (x * 6).sum(0) if place == "output" else (x * 3 + 1).sum(0)
    assert_same(infer(poptorch, lambda model, x: _overlapped(x, place), x), x * 3 + 1, "the output")
    assert_same(gradient(poptorch, loss, _values(4), x), slope, "the gradient")


def test_overlap_keeps_the_structure() -> None:
    """Tuples, lists and dictionaries of tensors keep their form."""
    from torch.utils._pytree import tree_leaves, tree_structure

    given = {"a": (_values(2, 2), _values(3)), "b": [_values(2)]}
    kept = poptorch.set_overlap_for_output(given, poptorch.OverlapMode.NoOverlap)

    check.equal(actual=tree_structure(kept), expected=tree_structure(given), what="the structure that comes back")
    for leaf, expected in zip(tree_leaves(kept), tree_leaves(given)):
        assert_same(leaf, expected, "a tensor in the structure")


# dynamic_slice and dynamic_update


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize(("dim", "size", "step"), [(1, 2, 1), (1, 4, 2), (-1, 3, 1), (1, 3, 2), (1, 4, 3)])
def test_a_slice_begins_where_the_device_says(start: int, dim: int, size: int, step: int) -> None:
    """The start of a slice is computed on the device."""
    x, at = _values(1, 7), torch.tensor([start], dtype=torch.int32)
    out = infer(poptorch, lambda model, x, at: poptorch.dynamic_slice(x, dim, at, size, step), x, at)

    assert_same(out, x[:, start : start + size : step], "the slice")


@pytest.mark.parametrize("start", [0, 2, 4])
def test_an_update_replaces_a_slice(start: int) -> None:
    """The result is a copy with the source in its place; the input keeps its values."""
    x, source = _values(1, 6), torch.tensor([[100.0, 200.0]])

    def forward(model: Any, x: Any, source: Any, start: Any) -> Any:
        return poptorch.dynamic_update(x, source, 1, start, 2), x * 1

    out, before = infer(poptorch, forward, x, source, torch.tensor([start]))
    expected = x.clone()
    expected[:, start : start + 2] = source

    assert_same(out, expected, "the updated copy")
    assert_same(before, x, "the input after the update")


# serializedMatMul


@pytest.mark.parametrize("mode", ["InputChannels", "ReducingDim", "OutputChannels", "Disabled"])
@pytest.mark.parametrize("factor", [1, 2, 6])
def test_a_product_in_pieces_is_the_product(mode: str, factor: int) -> None:
    """Neither the dimension nor the number of the pieces changes the product or its gradient."""
    left, right = _values(1, 6, 12), _values(12, 6)
    serialization = getattr(poptorch.MatMulSerializationMode, mode)

    def forward(model: Any, left: Any) -> Any:
        return poptorch.serializedMatMul(left, model.weight, serialization, factor)

    def loss(model: Any, left: Any) -> Any:
        return poptorch.identity_loss(forward(model, left), "sum")

    assert_same(infer(poptorch, forward, left, weight=torch.nn.Parameter(right)), left @ right, "the product")
    assert_same(gradient(poptorch, loss, right, left), left.sum((0, 1)).unsqueeze(1).expand(12, 6), "the gradient")


@pytest.mark.parametrize("mode", ["InputChannels", "ReducingDim", "OutputChannels"])
def test_products_of_a_batch_are_cut_alike(mode: str) -> None:
    """Where both factors have a batch in front, pieces are of the matrices and not of the batch."""
    left, right = _values(3, 6, 9), _values(3, 9, 12)
    serialization = getattr(poptorch.MatMulSerializationMode, mode)

    def forward(model: Any, left: Any, right: Any) -> Any:
        return poptorch.serializedMatMul(left, right, serialization, 3)

    assert_same(infer(poptorch, forward, left, right), left @ right, "the product")


def test_parts_of_a_half_precision_sum_keep_their_precision() -> None:
    """With keep_precision, a small part survives between two large ones that cancel."""
    left = torch.tensor([[2048.0, 0.5, -2048.0]]).half()
    mode = poptorch.MatMulSerializationMode.ReducingDim

    def forward(model: Any, left: Any) -> Any:
        return poptorch.serializedMatMul(left, model.right, mode, 3, keep_precision=True)

    out = infer(poptorch, forward, left, right=torch.nn.Parameter(torch.ones(3, 1).half()))

    assert_same(out, torch.tensor([[0.5]]).half(), "the product")


# fps and nearest


def test_fps_takes_the_farthest_points() -> None:
    """On a line the ends come first, then what is farthest from both; each batch begins with its first point."""
    points = torch.tensor([[0.0], [1.0], [2.0], [16.0], [6.0], [100.0], [101.0], [90.0]])
    out = infer(poptorch, lambda model, x: poptorch.fps(x, [0, 5, 8], 0.5), points)

    check.equal(actual=out.tolist(), expected=[0, 3, 4, 5, 7], what="the list of the sampled points")


def test_a_random_start_is_one_of_the_points() -> None:
    """Sampling all points from a random start gives each of them once."""
    out = infer(poptorch, lambda model, x: poptorch.fps(x, [0, 7], 1.0, random_start=True), _values(7, 3))

    check.equal(actual=sorted(out.tolist()), expected=list(range(7)), what="the sorted list of the sampled points")


@pytest.mark.parametrize(
    ("others", "batches", "expected"),
    [
        pytest.param([[0, 1], [5, 6], [50, 50], [60, 60]], [], [0, 1, 1, 0], id="alone"),
        pytest.param([[0, 0], [5, 6], [3, 3], [-2, 1]], [[0, 0, 1, 1], [1, 0, 0, 1]], [2, 1, 0, 3], id="in-batches"),
    ],
)
def test_nearest_stays_within_the_batch(others: Any, batches: Any, expected: Any) -> None:
    """Each point gets the index of the point that is closest to it, with batch numbers among those of its batch."""
    points = torch.tensor([[0.0, 0.0], [5.0, 5.0], [4.0, 6.0], [-1.0, 1.0]])

    out = infer(poptorch, lambda model, x, y: poptorch.nearest(x, y, *batches), points, torch.tensor(others) * 1.0)

    check.equal(actual=out.tolist(), expected=expected, what="the list of the nearest points")


# getIpuTensorId


def test_a_tensor_has_one_number_on_the_device() -> None:
    """Two tensors have two numbers, and one tensor keeps its own."""
    seen = []

    def forward(model: Any, x: Any) -> Any:
        other = x * 2
        seen.append([poptorch.getIpuTensorId(tensor) for tensor in (x, other, x)])
        return other

    infer(poptorch, forward, _values(1, 2))

    check.holds(seen, "forward was not called.")
    for first, second, again in seen:
        check.equal(actual=again, expected=first, what="the number of one tensor, asked again")
        check.differs(actual=second, other=first, what="the number of another tensor")
