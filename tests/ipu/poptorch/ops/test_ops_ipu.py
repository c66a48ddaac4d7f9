"""The operations that PopTorch adds: their values, their gradients and what they refuse.

Numbers are small multiples of powers of two, so that every result is exact in float32 and compared bit for bit.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import torch
from ..on_device import as_model, gradient, infer


def _values(*shape: int) -> Any:
    count = int(torch.tensor(shape).prod())
    return ((torch.arange(count, dtype=torch.float32) * 7) % 11 - 5).reshape(shape) * 0.25


# identity_loss


def _reduced(poptorch: Any, x: Any, reduction: str) -> Any:
    """The loss of ``x``; one that is not reduced must be a single value, which is its sum here."""
    return poptorch.identity_loss(x.sum() if reduction == "none" else x, reduction)


@pytest.mark.parametrize(("reduction", "share"), [("sum", 1.0), ("mean", 0.125), ("none", 1.0)])
def test_identity_loss_sends_ones_back(poptorch: Any, reduction: str, share: float) -> None:
    """The gradient of a sum, or of a loss as it is, is one; that of a mean is one over the number of elements."""
    x, weight = _values(2, 4), _values(4)

    out = gradient(poptorch, lambda model, x: _reduced(poptorch, x * model.weight, reduction), weight, x)

    assert_same(out, x.sum(0) * share, f"the gradient of a loss of reduction {reduction}")


@pytest.mark.parametrize(("reduction", "share"), [("sum", 1.0), ("mean", 0.25), ("none", 1.0)])
def test_identity_loss_is_the_reduced_value(poptorch: Any, torch: Any, reduction: str, share: float) -> None:
    """What comes back is the sum, the mean or the value itself."""
    x, weight = _values(1, 4), torch.nn.Parameter(torch.ones(4))
    model = as_model(lambda model, x: _reduced(poptorch, x * model.weight, reduction), weight=weight)

    assert_same(poptorch.trainingModel(model)(x), x.sum() * share, f"a loss of reduction {reduction}")


def test_a_loss_that_is_not_reduced_is_refused(poptorch: Any) -> None:
    """The final loss is a single value."""
    with check.raises(poptorch.Error, match="loss", what="a loss of 8 values"):
        gradient(poptorch, lambda model, x: poptorch.identity_loss(x * model.weight, "none"), _values(4), _values(2, 4))


@pytest.mark.parametrize("wrong", ["Sum", "median", 3, None], ids=repr)
def test_identity_loss_has_three_reductions(poptorch: Any, wrong: Any) -> None:
    """Any other reduction is refused."""
    with check.raises(AssertionError, match="reduction", what=f"the reduction {wrong!r}"):
        poptorch.identity_loss(_values(2), wrong)


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_identity_loss_works_on_the_host(poptorch: Any, torch: Any, reduction: str) -> None:
    """Outside the device it reduces as torch does, and its gradient flows."""
    x = _values(3).requires_grad_()
    poptorch.identity_loss(x, reduction).sum().backward()

    assert_same(x.grad, torch.full((3,), 1 / 3 if reduction == "mean" else 1.0), "the gradient on the host")


# ipu_print_tensor


def _printed(capfd: Any) -> str:
    return "".join(capfd.readouterr())


def test_a_tensor_is_printed_when_it_is_computed(poptorch: Any, torch: Any, capfd: Any) -> None:
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


def test_every_micro_batch_is_printed(poptorch: Any, capfd: Any) -> None:
    """Two replicas of three device iterations print six times, once for each micro-batch."""
    x = _values(6, 1) + 10
    options = poptorch.Options().deviceIterations(3).replicationFactor(2)
    infer(poptorch, lambda model, x: poptorch.ipu_print_tensor(x, "micro") * 2, x, options=options)
    lines = [line for line in _printed(capfd).splitlines() if "micro" in line]

    check.equal(actual=len(lines), expected=6, what="the number of titles printed")
    for value in x.flatten().tolist():
        check.contains(actual="\n".join(lines), expected=f"{value:g}", what="the printed lines")


def test_a_print_that_nobody_uses_is_optimized_away(poptorch: Any, capfd: Any) -> None:
    """The result of a print must be used."""

    def forward(model: Any, x: Any) -> Any:
        poptorch.ipu_print_tensor(x + 1, "unused")
        return x * 2

    infer(poptorch, forward, _values(1, 2))

    check.lacks(actual=_printed(capfd), unexpected="unused", what="what a run prints")


@pytest.mark.parametrize("wanted", [True, False])
def test_the_gradient_is_printed_too(poptorch: Any, torch: Any, capfd: Any, wanted: bool) -> None:
    """In training the gradient of the tensor is printed as well, unless it is not wanted; it is not changed."""
    x, weight = torch.tensor([[3.0, 5.0]]), torch.tensor([1.0, 1.0])

    def forward(model: Any, x: Any) -> Any:
        product = poptorch.ipu_print_tensor(x * model.weight, "product", print_gradient=wanted)
        return poptorch.identity_loss(product * 16, "sum")

    assert_same(gradient(poptorch, forward, weight, x), x[0] * 16, "the gradient")
    printed = _printed(capfd)
    actual, expected = (printed.count("product"), "16" in printed), (2 if wanted else 1, wanted)
    check.equal(actual=actual, expected=expected, what="the number of titles, and whether the gradient is printed")


def _print(poptorch: Any, x: Any, **settings: Any) -> None:
    """Print a tensor on the device."""
    infer(poptorch, lambda model, x: poptorch.ipu_print_tensor(x, **settings) * 2, x)


def test_long_tensors_are_summarised(poptorch: Any, torch: Any, capfd: Any) -> None:
    """Above the threshold only the items at the edges are printed."""
    _print(poptorch, torch.arange(40.0).reshape(1, 40), title="long", summarise_threshold=10, edge_items=2)
    printed = _printed(capfd)
    for text in ("...", "38", "39"):
        check.contains(actual=printed, expected=text, what="the printed text of 40 values")
    check.lacks(actual=printed, unexpected="20", what="the printed text of 40 values")


def test_brackets_separators_and_digits_can_be_chosen(poptorch: Any, torch: Any, capfd: Any) -> None:
    """The text of a printed tensor follows the settings."""
    settings = {"digits": 3, "float_format": "fixed", "separator": ",", "open_bracket": "(", "close_bracket": ")"}
    _print(poptorch, torch.tensor([[1.5, -2.25]]), title="styled", **settings)

    check.contains(actual="".join(_printed(capfd).split()), expected="((1.50,-2.25))", what="the printed text")


def test_an_unknown_float_format_is_refused(poptorch: Any) -> None:
    """Only the four formats are accepted."""
    with check.raises(poptorch.Error, match="hexadecimal", what="an unknown float_format"):
        _print(poptorch, _values(1, 2), float_format="hexadecimal")


def test_nothing_is_printed_on_the_host(poptorch: Any, capfd: Any) -> None:
    """Outside the device the tensor is passed on."""
    x = _values(2, 2)

    assert_same(poptorch.ipu_print_tensor(x, "host"), x, "the result on the host")
    check.lacks(actual=_printed(capfd), unexpected="host", what="what the host prints")


# Operations that change no value


MARKS: Dict[str, Callable[[Any, Any], Any]] = {
    "nop": lambda poptorch, x: poptorch.nop(x),
    "recomputationCheckpoint": lambda poptorch, x: poptorch.recomputationCheckpoint(x),
    "set_available_memory": lambda poptorch, x: poptorch.set_available_memory(x, 0.3),
}


@pytest.mark.parametrize("name", MARKS)
def test_marks_change_neither_values_nor_gradients(poptorch: Any, name: str) -> None:
    """What only tells the compiler something passes values and gradients on."""
    x = _values(3, 4)

    def mark(x: Any) -> Any:
        return MARKS[name](poptorch, x)

    def loss(model: Any, x: Any) -> Any:
        return poptorch.identity_loss(mark(x * model.weight) * 2, "sum")

    assert_same(infer(poptorch, lambda model, x: mark(x * 2) + 1, x), x * 2 + 1, "the output")
    assert_same(mark(x), x, "the result on the host")
    assert_same(gradient(poptorch, loss, _values(4), x), x.sum(0) * 2, "the gradient")


def _overlapped(poptorch: Any, x: Any, place: str, wrong: bool = False) -> Any:
    """Three times ``x`` and one more, with the transfer of the input or of the output overlapped, or of neither."""
    mark, mode = getattr(poptorch, f"set_overlap_for_{place}"), poptorch.OverlapMode.OverlapAccumulationLoop
    if wrong:
        return mark(x * 3, mode) + 1
    return mark(x, mode) * 3 + 1 if place == "input" else mark(x * 3 + 1, mode)


@pytest.mark.parametrize("place", ["input", "output"])
def test_overlap_changes_neither_values_nor_gradients(poptorch: Any, place: str) -> None:
    """A transfer that overlaps with computation moves the same values."""
    x = _values(3, 4)

    def loss(model: Any, x: Any) -> Any:
        out = x * model.weight
        out = out * 2 if place == "output" else _overlapped(poptorch, x, place) * model.weight
        marked = _overlapped(poptorch, out, place) if place == "output" else out
        return marked, poptorch.identity_loss(marked, "sum")

    slope = (x * 6).sum(0) if place == "output" else (x * 3 + 1).sum(0)
    assert_same(infer(poptorch, lambda model, x: _overlapped(poptorch, x, place), x), x * 3 + 1, "the output")
    assert_same(gradient(poptorch, loss, _values(4), x), slope, "the gradient")


@pytest.mark.emulator
@pytest.mark.parametrize("place", ["input", "output"])
def test_overlap_is_for_inputs_and_outputs(poptorch: Any, place: str) -> None:
    """A tensor in the middle of a model has no transfer to overlap."""
    with check.raises(poptorch.Error, match=place, what=f"set_overlap_for_{place} in the middle of a model"):
        infer(poptorch, lambda model, x: _overlapped(poptorch, x, place, wrong=True), _values(3, 4))


def test_several_values_are_checkpointed_at_once(poptorch: Any) -> None:
    """recomputationCheckpoint gives back as many tensors as it was given, in order."""
    x = _values(3, 4)

    def forward(model: Any, x: Any) -> Any:
        first, second = poptorch.recomputationCheckpoint(x + 1, x * 2)
        return first - second

    assert_same(infer(poptorch, forward, x), x + 1 - x * 2, "the output")


def test_overlap_keeps_the_structure(poptorch: Any) -> None:
    """Tuples, lists and dictionaries of tensors keep their form."""
    from torch.utils._pytree import tree_leaves, tree_structure

    given = {"a": (_values(2, 2), _values(3)), "b": [_values(2)]}
    kept = poptorch.set_overlap_for_output(given, poptorch.OverlapMode.NoOverlap)

    check.equal(actual=tree_structure(kept), expected=tree_structure(given), what="the structure that comes back")
    for leaf, expected in zip(tree_leaves(kept), tree_leaves(given)):
        assert_same(leaf, expected, "a tensor in the structure")


@pytest.mark.parametrize("name", ["set_overlap_for_input", "set_overlap_for_output"])
def test_overlap_needs_a_mode(poptorch: Any, name: str) -> None:
    """Anything but an OverlapMode is refused."""
    with check.raises((poptorch.Error, AssertionError), what=f"{name} with the name of a mode"):
        getattr(poptorch, name)(_values(2), "no_overlap")


@pytest.mark.parametrize("wrong", [-0.5, 1.5, "half"], ids=repr)
def test_a_proportion_of_memory_is_from_zero_to_one(poptorch: Any, wrong: Any) -> None:
    """Other proportions are refused."""
    with check.raises((poptorch.Error, ValueError, AssertionError), what=f"a proportion of {wrong!r}"):
        infer(poptorch, lambda model, x: poptorch.set_available_memory(x * 2, wrong), _values(1, 2))


@pytest.mark.emulator
def test_a_custom_operation_is_refused(poptorch: Any) -> None:
    """C++ code for the device does not run in the emulator, and the error names the operation."""
    x = _values(1, 2)

    with check.raises(poptorch.Error, match=r"my\.domain\.Cube", what="a custom operation"):
        infer(poptorch, lambda model, x: poptorch.custom_op([x], "Cube", "my.domain", 1, [x])[0], x)


# dynamic_slice and dynamic_update


def _sliced(poptorch: Any, dim: int, size: int, step: int) -> Any:
    """A forward that slices where its second input says."""
    return lambda model, x, start: poptorch.dynamic_slice(x, dim, start, size, step)


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize(("dim", "size", "step"), [(1, 2, 1), (1, 4, 2), (-1, 3, 1), (1, 3, 2), (1, 4, 3)])
def test_a_slice_begins_where_the_device_says(
    poptorch: Any, torch: Any, start: int, dim: int, size: int, step: int
) -> None:
    """One compiled model slices at any start."""
    x = _values(1, 7)
    out = infer(poptorch, _sliced(poptorch, dim, size, step), x, torch.tensor([start], dtype=torch.int32))

    assert_same(out, x[:, start : start + size : step], "the slice")


def test_a_slice_wraps_round(poptorch: Any, torch: Any) -> None:
    """A slice beyond the end goes on at the beginning."""
    x = _values(1, 5)

    assert_same(infer(poptorch, _sliced(poptorch, 1, 3, 1), x, torch.tensor([4])), x[:, [4, 0, 1]], "the slice")


def test_one_compiled_slice_serves_every_start(poptorch: Any, torch: Any) -> None:
    """The start is a value, not a constant of the compiled model."""
    x = _values(1, 6)
    inference = poptorch.inferenceModel(as_model(_sliced(poptorch, 1, 2, 1)))

    for start in (0, 4, 2):
        assert_same(inference(x, torch.tensor([start])), x[:, start : start + 2], f"the slice from {start}")


def test_the_gradient_of_a_slice_goes_where_it_came_from(poptorch: Any, torch: Any) -> None:
    """Positions that were not sliced have no gradient."""

    def forward(model: Any, x: Any, start: Any) -> Any:
        return poptorch.identity_loss(poptorch.dynamic_slice(model.weight, 0, start, 2, 1) * x, "sum")

    out = gradient(poptorch, forward, _values(5), torch.tensor([[4.0, 8.0]]), torch.tensor([3]))

    assert_same(out, torch.tensor([0.0, 0.0, 0.0, 4.0, 8.0]), "the gradient")


@pytest.mark.parametrize(("size", "step", "dim"), [(0, 1, 1), (8, 1, 1), (2, 0, 1), (2, 1, 2), (2, 1, -3)])
def test_sizes_steps_and_dimensions_must_fit(poptorch: Any, torch: Any, size: int, step: int, dim: int) -> None:
    """A slice that does not fit its dimension, or has no step, is refused."""
    with check.raises(poptorch.Error, match="dynamic_slice", what=f"size {size}, step {step}, dimension {dim}"):
        infer(poptorch, _sliced(poptorch, dim, size, step), _values(1, 7), torch.tensor([0]))


def test_the_start_of_a_slice_is_an_integer(poptorch: Any, torch: Any) -> None:
    """A start that is a fraction is refused."""
    with check.raises(poptorch.Error, match="integer", what="a slice from 0.5"):
        infer(poptorch, _sliced(poptorch, 1, 2, 1), _values(1, 7), torch.tensor([0.5]))


@pytest.mark.parametrize("start", [0, 2, 4])
def test_an_update_replaces_a_slice(poptorch: Any, torch: Any, start: int) -> None:
    """The result is a copy with the source in its place; the input keeps its values."""
    x, source = _values(1, 6), torch.tensor([[100.0, 200.0]])

    def forward(model: Any, x: Any, source: Any, start: Any) -> Any:
        return poptorch.dynamic_update(x, source, 1, start, 2), x * 1

    out, before = infer(poptorch, forward, x, source, torch.tensor([start]))
    expected = x.clone()
    expected[:, start : start + 2] = source

    assert_same(out, expected, "the updated copy")
    assert_same(before, x, "the input after the update")


def test_an_update_needs_a_source_that_fits(poptorch: Any, torch: Any) -> None:
    """A source of another shape or type is refused."""

    def forward(model: Any, x: Any, source: Any, start: Any) -> Any:
        return poptorch.dynamic_update(x, source, 1, start, 2)

    for source in (torch.zeros(1, 3), torch.zeros(1, 2, dtype=torch.int32)):
        with check.raises(poptorch.Error, match="dynamic_update", what=f"a source of {source.shape}, {source.dtype}"):
            infer(poptorch, forward, _values(1, 6), source, torch.tensor([1]))


# serializedMatMul


@pytest.mark.parametrize("mode", ["InputChannels", "ReducingDim", "OutputChannels", "Disabled"])
@pytest.mark.parametrize("factor", [1, 2, 6])
def test_a_product_in_pieces_is_the_product(poptorch: Any, torch: Any, mode: str, factor: int) -> None:
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
def test_products_of_a_batch_are_cut_alike(poptorch: Any, mode: str) -> None:
    """Where both factors have a batch in front, pieces are of the matrices and not of the batch."""
    left, right = _values(3, 6, 9), _values(3, 9, 12)
    serialization = getattr(poptorch.MatMulSerializationMode, mode)

    def forward(model: Any, left: Any, right: Any) -> Any:
        return poptorch.serializedMatMul(left, right, serialization, 3)

    assert_same(infer(poptorch, forward, left, right), left @ right, "the product")


@pytest.mark.parametrize(("mode", "factor"), [("InputChannels", 4), ("ReducingDim", 5), ("OutputChannels", 0)])
def test_the_number_of_pieces_divides_the_dimension(poptorch: Any, mode: str, factor: int) -> None:
    """A factor that does not divide is refused."""
    serialization = getattr(poptorch.MatMulSerializationMode, mode)

    def forward(model: Any, x: Any) -> Any:
        return poptorch.serializedMatMul(x, x.transpose(1, 2), serialization, factor)

    with check.raises(poptorch.Error, match="factor", what=f"{factor} pieces of {mode}"):
        infer(poptorch, forward, _values(1, 6, 12))


def test_parts_of_a_half_precision_sum_keep_their_precision(poptorch: Any, torch: Any) -> None:
    """With keep_precision, a small part survives between two large ones that cancel."""
    left = torch.tensor([[2048.0, 0.5, -2048.0]]).half()
    mode = poptorch.MatMulSerializationMode.ReducingDim

    def forward(model: Any, left: Any) -> Any:
        return poptorch.serializedMatMul(left, model.right, mode, 3, keep_precision=True)

    out = infer(poptorch, forward, left, right=torch.nn.Parameter(torch.ones(3, 1).half()))

    assert_same(out, torch.tensor([[0.5]]).half(), "the product")


# fps and nearest


def test_fps_takes_the_farthest_points(poptorch: Any, torch: Any) -> None:
    """On a line the ends come first, then what is farthest from both; each batch begins with its first point."""
    points = torch.tensor([[0.0], [1.0], [2.0], [16.0], [6.0], [100.0], [101.0], [90.0]])
    out = infer(poptorch, lambda model, x: poptorch.fps(x, [0, 5, 8], 0.5), points)

    check.equal(actual=out.tolist(), expected=[0, 3, 4, 5, 7], what="the list of the sampled points")


@pytest.mark.parametrize(("ptr", "ratio"), [([0, 3], 0.5), ([1, 8], 0.5), ([0, 8], 0.0), ([0, 8], 1.5), ([8], 0.5)])
def test_fps_needs_bounds_and_a_ratio(poptorch: Any, ptr: Any, ratio: float) -> None:
    """Bounds that do not hold all points, and ratios beyond one, are refused."""
    with check.raises(poptorch.Error, match="fps", what=f"the bounds {ptr} with the ratio {ratio}"):
        infer(poptorch, lambda model, x: poptorch.fps(x, ptr, ratio), _values(8, 2))


def test_a_random_start_is_one_of_the_points(poptorch: Any) -> None:
    """Sampling all points from a random start gives each of them once."""
    out = infer(poptorch, lambda model, x: poptorch.fps(x, [0, 7], 1.0, random_start=True), _values(7, 3))

    check.equal(actual=sorted(out.tolist()), expected=list(range(7)), what="the sorted list of the sampled points")


def _nearest(poptorch: Any, *batches: Any) -> Any:
    """A forward that looks for the nearest points."""
    return lambda model, x, y: poptorch.nearest(x, y, *batches)


def test_nearest_finds_the_closest_point(poptorch: Any, torch: Any) -> None:
    """Each point gets the index of the point that is closest to it."""
    points = torch.tensor([[0.0, 0.0], [5.0, 5.0], [4.0, 6.0], [-1.0, 1.0]])
    queries = torch.tensor([[0.0, 1.0], [5.0, 6.0], [50.0, 50.0], [60.0, 60.0]])

    out = infer(poptorch, _nearest(poptorch), points, queries)
    check.equal(actual=out.tolist(), expected=[0, 1, 1, 0], what="the list of the nearest points")


def test_nearest_stays_within_the_batch(poptorch: Any, torch: Any) -> None:
    """With batch numbers only points of the same batch are candidates."""
    points = torch.tensor([[0.0], [10.0], [0.0], [10.0]])
    queries = torch.tensor([[0.0], [10.0], [3.0], [11.0]])

    out = infer(poptorch, _nearest(poptorch, [0, 0, 1, 1], [1, 0, 0, 1]), points, queries)

    check.equal(actual=out.tolist(), expected=[2, 1, 0, 3], what="the list of the nearest points")


def test_nearest_needs_both_batches(poptorch: Any) -> None:
    """The batch of one set alone is refused."""
    with check.raises(poptorch.Error, match="nearest", what="the batch of one set alone"):
        infer(poptorch, _nearest(poptorch, [0, 0, 1]), _values(3, 2), _values(3, 2))


# getIpuTensorId


def test_a_tensor_has_one_number_on_the_device(poptorch: Any) -> None:
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
