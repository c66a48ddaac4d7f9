"""What a model may be called with, the first time and later."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Dict, NamedTuple, Tuple

import pytest

from ipu_conformance import check

from .. import exact
from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model, assert_refused, gradient, infer


def flexible() -> Any:
    """A model that takes all kinds of arguments and adds up the tensors in them; a number multiplies."""
    from torch.utils import _pytree as pytree

    class Flexible(torch.nn.Module):
        def forward(self, x: Any, y: Any = None, *, factor: Any = 1) -> Any:
            tensors = [leaf for leaf in pytree.tree_leaves((x, y)) if isinstance(leaf, torch.Tensor)]
            return sum(tensors[1:], tensors[0]) * factor

    return Flexible()


class Pair(NamedTuple):
    """A named tuple of inputs."""

    a: Any
    b: Any


CONTAINERS: Dict[str, Callable[[Any, Any], Tuple[Tuple[Any, ...], Dict[str, Any]]]] = {
    "positional": lambda a, b: ((a, b), {}),
    "keyword": lambda a, b: ((a,), {"y": b}),
    "all-keywords": lambda a, b: ((), {"y": b, "x": a}),
    "tuple": lambda a, b: (((a, b),), {}),
    "list": lambda a, b: (([a, b],), {}),
    "dict": lambda a, b: (({"p": a, "q": b},), {}),
    "named-tuple": lambda a, b: ((Pair(a, b),), {}),
    "nested": lambda a, b: (({"p": [a, (b,)]},), {}),
    "constant": lambda a, b: ((a, b), {"factor": 3}),
}


@pytest.mark.parametrize("name", sorted(CONTAINERS))
def test_tensors_may_be_anywhere_in_the_arguments(poptorch: Any, name: str) -> None:
    """Every tensor in tuples, lists, dicts and keywords is divided into micro-batches, three here."""
    a, b = exact.samples(6), exact.samples(6) * 2
    args, kwargs = CONTAINERS[name](a, b)

    out = poptorch.inferenceModel(flexible(), poptorch.Options().deviceIterations(3))(*args, **kwargs)

    assert_same(out, flexible()(*args, **kwargs), "the output")


SAME: Dict[str, Tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "positions and names": (lambda model, x: model(x, x * 2), lambda model, x: model(y=x * 2, x=x)),
    "defaults left out and given": (lambda model, x: model(x), lambda model, x: model(x, None, factor=1)),
}


@pytest.mark.parametrize("what", SAME)
def test_two_ways_to_write_a_call_are_the_same(poptorch: Any, what: str) -> None:
    """What was compiled with positions can be called with names, and defaults may be left out."""
    x, model = exact.samples(2), poptorch.inferenceModel(flexible())

    for number, call in enumerate(SAME[what]):
        assert_same(call(model, x), call(flexible(), x), f"the output of call {number} of {what}")


CHANGES: Dict[str, Callable[[Any], Tuple[Tuple[Any, ...], Tuple[Any, ...]]]] = {
    "shape": lambda a: ((a,), (a[:1],)),
    "more-samples": lambda a: ((a,), (a.repeat(2, 1),)),
    "rank": lambda a: ((a,), (a[0],)),
    "dtype": lambda a: ((a,), (a.half(),)),
    "dtype-64": lambda a: ((a,), (a.double(),)),
    "more-arguments": lambda a: ((a,), (a, a)),
    "fewer-arguments": lambda a: ((a, a), (a,)),
    "type": lambda a: (((a, a),), ([a, a],)),
    "length": lambda a: (((a, a),), ((a, a, a),)),
    "keys": lambda a: (({"p": a},), ({"q": a},)),
    "more-keys": lambda a: (({"p": a},), ({"p": a, "q": a},)),
    "tensor-to-number": lambda a: ((a, a), (a, 2)),
    "number-to-tensor": lambda a: ((a, 2), (a, a)),
    "number": lambda a: ((a, 2), (a, 3)),
    "number-type": lambda a: ((a, 2), (a, 2.0)),
    "text": lambda a: ((a, "b"), (a, "c")),
    "flag": lambda a: ((a, True), (a, False)),
}
"""Arguments of a first call and different ones of a second."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_compiled_model_takes_only_what_it_was_compiled_for(poptorch: Any, name: str) -> None:
    """Another number, type, length, key, dtype, shape or constant than in the first call is an error."""
    first, second = CHANGES[name](exact.samples(2))
    model = poptorch.inferenceModel(flexible())
    model(*first)

    with check.raises(poptorch.Error, what=f"a second call with another {name}"):
        model(*second)
    model(*first)


def test_a_number_is_a_constant_of_the_program(poptorch: Any) -> None:
    """An argument that is not a tensor is compiled in, and another value is refused rather than ignored."""
    x = exact.samples(2)
    model = poptorch.inferenceModel(flexible())

    assert_same(model(x, factor=3), x * 3, "the output")
    with check.raises(poptorch.Error, match="factor", what="a call with factor=4 after one with 3"):
        model(x, factor=4)


def summed() -> Any:
    """A model of arguments with and without a default, and of one by name alone."""

    class Sum(torch.nn.Module):
        def forward(self, a: Any, b: Any, c: Any = None, *, d: Any) -> Any:
            return a + b + d

    return Sum()


def test_an_argument_by_name_has_no_position(poptorch: Any) -> None:
    """What forward takes by name alone is passed by name."""
    x = exact.samples(2)

    assert_same(poptorch.inferenceModel(summed())(x, x * 3, d=x + 1), x * 5 + 1, "the output")


def _branched(model: Any, x: Any) -> Any:
    return x if x.sum() > 0 else -x


REFUSED: Dict[str, Tuple[Any, str, Callable[[Any], Any]]] = {
    "a second argument for a layer of one input": (
        AssertionError, "Too many arguments", lambda x: poptorch.inferenceModel(torch.nn.Linear(2, 3))(x, x)
    ),
    "a position for an argument by name": (
        AssertionError, "Too many arguments", lambda x: poptorch.inferenceModel(summed())(x, x, x, x)
    ),
    "x by position and by name": (
        AssertionError, "more than once", lambda x: poptorch.inferenceModel(flexible())(x, x=x)
    ),
    "an input without elements": ("Error", "[Zz]ero-sized", lambda x: infer(poptorch, lambda model, x: x * 2, x[:0])),
    "a tensor without elements inside": (
        "Error", "[Zz]ero-sized", lambda x: infer(poptorch, lambda model, x: torch.cat([x[:0], x]), x)
    ),
    "a weight without elements": (
        "Error", "[Zz]ero-sized",
        lambda x: infer(poptorch, lambda model, x: x * 2, x, weight=torch.nn.Parameter(torch.zeros(0, 2))),
    ),
    "a complex input": ("Error", "(?i)type", lambda x: infer(poptorch, lambda model, x: x * 2, x.to(torch.complex64))),
    "a branch on the value of a tensor": ("Error", r"test_inputs_ipu\.py", lambda x: infer(poptorch, _branched, x)),
}  # fmt: skip
"""What a model cannot be called with; an error about the model's code names its line."""


@pytest.mark.parametrize("what", REFUSED)
def test_a_call_that_cannot_be_compiled_is_refused(what: str) -> None:
    """Positions are as many as forward has, each argument comes once, and a device has no tensors of size 0."""
    error, text, call = REFUSED[what]

    assert_refused(what, error, text, lambda: call(exact.samples(2)))


@pytest.mark.parametrize(
    ("positions", "names", "missing"),
    [(0, "bd", "a"), (1, "d", "b"), (1, "b", "d"), (2, "", "d"), (0, "ab", "d")],
    ids=lambda value: str(value) or "none",
)
def test_the_missing_argument_is_named(poptorch: Any, positions: int, names: str, missing: str) -> None:
    """Of several arguments, some by position and some by name, the first that is missing is named."""
    x = exact.samples(1)
    with check.raises(poptorch.Error, match=rf"\b{missing}\b.*missing", what=f"a call without {missing}"):
        poptorch.inferenceModel(summed())(*[x] * positions, **dict.fromkeys(names, x))


def test_a_model_without_inputs_has_all_its_micro_batches(poptorch: Any, torch: Any) -> None:
    """A model that is fed nothing runs as often as its options say, and each micro-batch has its part in the mean."""

    def forward(model: Any) -> Any:
        out = model.weight * 2
        return out, poptorch.identity_loss(out, reduction="sum")

    config, start = exact.counts(3, 5, 2), torch.tensor([[1.0, -4.0]])
    model = as_model(forward, weight=torch.nn.Parameter(start.clone()))
    trainer, _ = exact.trainer(poptorch, config, model=model)

    out, _ = trainer()

    steps = torch.arange(3.0).repeat_interleave(5 * 2)[:, None]
    assert_same(out, 2 * (start - exact.RATE * 2 * steps), "the outputs of all micro-batches")
    assert_same(model.weight, start - exact.RATE * 2 * 3, "the weight after three updates")


@pytest.mark.parametrize(
    ("host", "device"),
    [("int64", "int32"), ("float64", "float32"), ("bfloat16", "float32"), ("int32", "int32"), ("float16", "float16")],
)
def test_inputs_are_narrowed_on_the_way(poptorch: Any, torch: Any, host: str, device: str) -> None:
    """An echo has the type and the values that the device had; doubles and indices of forward have 32 bits, too."""
    x = (exact.samples(3) * 1024 + 0.1).to(getattr(torch, host))
    narrow = x.to(getattr(torch, device))

    echo, doubles, indices = infer(poptorch, lambda model, x: (x, x.double(), x.argmax(dim=1)), x)

    assert_same(echo, narrow, "the echo")
    assert_same(doubles, narrow.float(), "what is cast to float64")
    assert_same(indices, narrow.argmax(dim=1).int(), "the indices")


def test_integers_lose_their_high_bits(poptorch: Any, torch: Any) -> None:
    """2^32 + 5 is 5 on a device of 32-bit integers."""
    out = poptorch.inferenceModel(flexible())(torch.tensor([2**32 + 5, -(2**32) - 7, 9]))

    check.equal(actual=out.tolist(), expected=[5, -7, 9], what="the output")


def test_labels_of_64_bits_work(poptorch: Any, torch: Any) -> None:
    """Class numbers are 64-bit on the host; losses and embeddings take them as they are."""
    table, index = torch.nn.Embedding(5, 3), torch.tensor([4, 0, 2, 2])

    out = infer(poptorch, lambda model, index: model.table(index), index, table=table)
    assert_same(out, table(index), "the embedding")


def test_python_that_depends_on_shapes_works(poptorch: Any) -> None:
    """Loops and branches on shapes and constants are unrolled."""

    def forward(model: Any, x: Any, times: int) -> Any:
        for number in range(x.shape[0] * times):
            if number % 2 == 0:
                x = x + number
        return x

    x = exact.samples(6)

    out = infer(poptorch, forward, x, 3, options=poptorch.Options().deviceIterations(3))

    assert_same(out, x + (0 + 2 + 4), "the output")


def test_a_model_that_writes_into_its_input_changes_the_caller_s(poptorch: Any) -> None:
    """What a model changes in place is copied to the caller's input, for the second of three too, in every call."""
    x, y, z = exact.samples(3), exact.samples(3), exact.samples(3)
    wrapped = poptorch.inferenceModel(as_model(lambda model, x, y, z: x.add_(1) * y.mul_(2) + z))
    for call in range(3):
        before = (x.clone(), y.clone(), z.clone())

        out = wrapped(x, y, z)

        assert_same(out, (before[0] + 1) * (before[1] * 2) + before[2], f"the output of call {call}")
        for actual, expected in zip((x, y, z), (before[0] + 1, before[1] * 2, before[2])):
            assert_same(actual, expected, f"an input after call {call}")


class Named(OrderedDict):
    """A dictionary of a class of its own."""


def test_a_dictionary_of_its_own_class_comes_and_goes(poptorch: Any) -> None:
    """A subclass of OrderedDict is taken apart, and the output is of the class that forward returns."""
    x = exact.samples(2)
    wrapped = poptorch.inferenceModel(as_model(lambda model, named: Named(c=named["b"] * 2, d=named["a"])))

    for factor in (1, 4):
        out = wrapped(Named(a=x * factor, b=x * factor + 1))
        check.instance(actual=out, expected=Named, what="the output")
        check.equal(actual=list(out), expected=["c", "d"], what="the keys of the output")
        assert_same(out["c"], (x * factor + 1) * 2, "what is made of b")
        assert_same(out["d"], x * factor, "what is made of a")


def test_keys_may_come_in_another_order(poptorch: Any) -> None:
    """Tensors of a later call are found by their keys, not by their places."""
    x = exact.samples(2)
    wrapped = poptorch.inferenceModel(as_model(lambda model, named: named["a"] - 3 * named["b"]["c"]))
    wrapped({"a": x, "b": {"c": x, "d": x}})

    assert_same(wrapped({"b": {"d": x * 4, "c": x * 2}, "a": x}), -5 * x, "the output")


def test_an_input_takes_what_is_computed_from_weights(poptorch: Any, torch: Any) -> None:
    """copy_ into an input of a training model writes there, and the gradient passes through it."""
    weight = torch.nn.Parameter(torch.tensor([2.0, -4.0]))

    def forward(model: Any, x: Any, y: Any) -> Any:
        y.copy_(x * model.weight)
        return poptorch.identity_loss((y * y).sum(), reduction="none")

    model = as_model(forward, weight=weight)
    trainer = poptorch.trainingModel(model, None, torch.optim.SGD(model.parameters(), lr=0.125))
    x, y = torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2)
    trainer(x, y)

    assert_same(y, torch.tensor([[2.0, -8.0]]), "the input that was written into")
    # The gradient of (x w)^2 is 2 x^2 w.
    assert_same(model.weight, torch.tensor([2.0 - 0.125 * 4, -4.0 + 0.125 * 32]), "the weight after one step")


def _over_input(poptorch: Any, model: Any, x: Any) -> Any:
    """The input is the product from here on: the gradient is what it was, 2 and -3."""
    x.copy_(x * model.weight)
    return poptorch.identity_loss(x, "sum")


def _over_result(poptorch: Any, model: Any, x: Any) -> Any:
    """The square of the product is taken before it is written over: the gradient is 2 x (x w) + 5 x."""
    product = x * model.weight
    square = product * product
    product.mul_(5)
    return poptorch.identity_loss(square + product, "sum")


@pytest.mark.parametrize(
    ("forward", "slope"), [(_over_input, [2.0, -3.0]), (_over_result, [18.0, 21.0])], ids=["input", "result"]
)
def test_what_is_written_over_has_had_its_gradient(poptorch: Any, torch: Any, forward: Any, slope: Any) -> None:
    """A gradient is made of the values that the operation saw, whatever is written into them later."""
    x, weight = torch.tensor([[2.0, -3.0]]), torch.tensor([1.0, 2.0])

    actual = gradient(poptorch, lambda model, x: forward(poptorch, model, x), weight, x)

    assert_same(actual, torch.tensor(slope), "the gradient")
