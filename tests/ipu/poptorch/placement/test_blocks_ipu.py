"""Blocks in every spelling: where operations go, what has an end, and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any, List

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import torch
from ..on_device import as_model, gradient, infer
from .placed import SPELLINGS, assert_placed, chain, ipus_of, placements, samples


def _sharded(poptorch: Any) -> Any:
    return poptorch.Options().autoRoundNumIPUs(True).setExecutionStrategy(poptorch.ShardedExecution())


def _ipus(poptorch: Any, capfd: Any, model: Any, options: Any = None) -> List[int]:
    """The IPUs of the operations of a model, in order."""
    inference = poptorch.inferenceModel(model, options or _sharded(poptorch))
    return ipus_of(placements(capfd, poptorch, lambda: inference(samples(2))))


@pytest.mark.ipus(4)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_places_the_layers(poptorch: Any, capfd: Any, spelling: str) -> None:
    """The operations of a layer are on the IPU of its block."""
    assert_placed(_ipus(poptorch, capfd, chain(poptorch, (1, 0, 3), spelling, loss=False)), [1, 0, 3])


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_blocks_do_nothing_on_the_host(poptorch: Any, spelling: str) -> None:
    """A model with blocks runs on the host as one without."""
    with_blocks, without = chain(poptorch, (1, 0), spelling, loss=False), chain(poptorch, (0, 0), "none", loss=False)

    assert_same(with_blocks(samples(5)), without(samples(5)), "the output on the host")


def before_the_first_block(poptorch: Any, x: Any) -> Any:
    """A model may compute before it begins a block: that is on IPU 0."""
    x = x * 2
    poptorch.Block.start(ipu_id=1)
    return x + 1


def started_in_a_function(poptorch: Any, x: Any) -> Any:
    """Block.start holds until another block begins, also after the function that called it."""

    def inside(x: Any) -> Any:
        poptorch.Block.start(ipu_id=1)
        return x * 2

    return inside(x + 3) - 1


def nested(poptorch: Any, x: Any) -> Any:
    """After an inner block, operations are in the outer one again."""
    with poptorch.Block("outer", ipu_id=0):
        x = x * 2
        with poptorch.Block("inner", ipu_id=1):
            x = x + 1
        return x - 3


def entered_again(poptorch: Any, x: Any) -> Any:
    """The same object opens the same block each time."""
    block = poptorch.Block("again", ipu_id=1)
    with block:
        x = x * 2
    with poptorch.Block("between", ipu_id=0):
        x = x + 1
    with block:
        return x - 3


def started_after_a_closed_one(poptorch: Any, x: Any) -> Any:
    """A block without an end may follow one that has ended."""
    with poptorch.Block(ipu_id=0):
        x = x * 2
    poptorch.Block.start(ipu_id=1)
    return x + 1


def left_by_an_exception(poptorch: Any, x: Any) -> Any:
    """A block ends also when what is inside fails and the model goes on."""
    poptorch.Block.start("outer", ipu_id=0)
    try:
        with poptorch.Block("inner", ipu_id=1):
            x = x * 2
            raise KeyError("inside")
    except KeyError:
        return x + 1


def without_gradients(poptorch: Any, x: Any) -> Any:
    """torch.no_grad does not open a block: what is inside is placed by the blocks that it begins."""
    with torch.no_grad():
        x = x * 2
        poptorch.Block.start(ipu_id=1)
        x = x + 1
    poptorch.Block.start(ipu_id=0)
    return x - 3


PLACED = {
    before_the_first_block: [0, 1],
    started_in_a_function: [0, 1],
    nested: [0, 1, 0],
    entered_again: [1, 0, 1],
    started_after_a_closed_one: [0, 1],
    left_by_an_exception: [1, 0],
    without_gradients: [0, 1, 0],
}
"""The IPUs of the operations, in order."""


@pytest.mark.ipus(2)
@pytest.mark.parametrize("forward", PLACED)
def test_an_operation_is_in_the_block_that_is_open(poptorch: Any, capfd: Any, forward: Any) -> None:
    """Every operation is on the IPU of the block that is open where it is written."""
    assert_placed(_ipus(poptorch, capfd, as_model(lambda model, x: forward(poptorch, x))), PLACED[forward])


@pytest.mark.ipus(2)
def test_begin_block_has_no_end(poptorch: Any, torch: Any, capfd: Any) -> None:
    """What follows a layer with BeginBlock stays in its block."""
    layer = poptorch.BeginBlock(torch.nn.Linear(2, 3), ipu_id=1)

    assert_placed(_ipus(poptorch, capfd, as_model(lambda model, x: model.layer(x * 2) + 1, layer=layer)), [0, 1])


@pytest.mark.ipus(2)
def test_begin_block_takes_a_function(poptorch: Any, capfd: Any) -> None:
    """For a function BeginBlock returns one that begins the block."""
    begun = poptorch.BeginBlock(lambda x: x * 2, "double", ipu_id=1)

    assert_placed(_ipus(poptorch, capfd, as_model(lambda model, x: begun(x - 1))), [0, 1])
    check.equal(actual=begun(3), expected=6, what="what the function returns on the host")


@pytest.mark.ipus(2)
def test_a_begun_function_is_a_layer_of_a_model(poptorch: Any, torch: Any, capfd: Any) -> None:
    """What BeginBlock makes of a function is a module, which stands among the layers of a Sequential."""
    begun = poptorch.BeginBlock(lambda x: x * 2, "double", ipu_id=1)

    check.instance(actual=begun, expected=torch.nn.Module, what="BeginBlock of a function")
    assert_placed(_ipus(poptorch, capfd, torch.nn.Sequential(torch.nn.ReLU(), begun)), [0, 1])


def after_with(poptorch: Any, x: Any) -> Any:
    with poptorch.Block(ipu_id=0):
        x = x * 2
    return x + 1


def after_function(poptorch: Any, x: Any) -> Any:
    return poptorch.BlockFunction("inside", ipu_id=0)(lambda x: x * 2)(x) + 1


def between(poptorch: Any, x: Any) -> Any:
    with poptorch.Block("a"):
        x = x * 2
    x = x + 1
    with poptorch.Block("b"):
        return x - 3


@pytest.mark.parametrize("forward", [after_with, after_function, between])
def test_operations_outside_a_closed_block_are_refused(poptorch: Any, forward: Any) -> None:
    """Once a block has ended, every operation must be in a block."""
    with check.raises(poptorch.Error, match="No active Block", what=f"an operation {forward.__name__} blocks"):
        infer(poptorch, lambda model, x: forward(poptorch, x), samples(2), options=_sharded(poptorch))


@pytest.mark.ipus(2)
def test_a_block_is_on_one_ipu(poptorch: Any) -> None:
    """Two blocks of one id are one block, which cannot be on two IPUs."""

    def forward(model: Any, x: Any) -> Any:
        poptorch.Block.start("same", ipu_id=0)
        x = x * 2
        poptorch.Block.start("same", ipu_id=1)
        return x + 1

    with check.raises(poptorch.Error, what="one block on two IPUs"):
        infer(poptorch, forward, samples(2), options=_sharded(poptorch))


def test_a_region_without_gradients_stops_them(poptorch: Any, torch: Any) -> None:
    """A weight that is used with and without its gradient gets the gradient of the first use only."""

    def forward(model: Any, x: Any) -> Any:
        with torch.no_grad():
            scale = x * model.weight
        return poptorch.identity_loss(scale * model.weight, "sum")

    passed = gradient(poptorch, forward, torch.tensor([2.0, -1.0]), torch.tensor([[3.0, 5.0]]))

    assert_same(passed, torch.tensor([6.0, -5.0]), "the gradient")


def test_begin_block_changes_the_layer_in_place(poptorch: Any, torch: Any) -> None:
    """BeginBlock returns the layer itself, which keeps its type, its weights and its text."""
    layer = torch.nn.Linear(2, 3)
    before = (list(layer.state_dict()), repr(layer))
    returned = poptorch.BeginBlock(layer, "block", ipu_id=0)

    check.holds(returned is layer, f"BeginBlock returns {returned}, not the layer itself.")
    check.instance(actual=layer, expected=torch.nn.Linear, what="the layer")
    after = (list(layer.state_dict()), repr(layer))
    check.equal(actual=after, expected=before, what="the pair of the weights' names and the layer's text")


def test_a_layer_is_in_one_block(poptorch: Any, torch: Any) -> None:
    """A second BeginBlock on the same layer is refused."""
    layer = poptorch.BeginBlock(torch.nn.Linear(2, 3), "first", ipu_id=0)

    with check.raises(poptorch.Error, what="a second BeginBlock on a layer"):
        poptorch.BeginBlock(layer, "second", ipu_id=1)


@pytest.mark.ipus(2)
def test_remove_blocks_takes_all_of_them_back(poptorch: Any, torch: Any, capfd: Any) -> None:
    """Afterwards the layers have their own classes, everything is on IPU 0, and blocks can be given again."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.Linear(3, 2)))
    poptorch.BeginBlock(model[0], "first", ipu_id=0)
    poptorch.BeginBlock(model[1][0], "second", ipu_id=1)
    poptorch.removeBlocks(model)

    types = [type(model[0]), type(model[1][0])]
    check.equal(actual=types, expected=[torch.nn.Linear] * 2, what="the type of each layer")
    assert_placed(_ipus(poptorch, capfd, model), [0])
    again = torch.nn.Sequential(copy.deepcopy(model[0]), poptorch.BeginBlock(copy.deepcopy(model[1][0]), ipu_id=1))
    assert_placed(_ipus(poptorch, capfd, again), [0, 1])


@pytest.mark.ipus(2)
@pytest.mark.parametrize("again", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_of_a_layer_keeps_its_block(poptorch: Any, torch: Any, capfd: Any, again: Any) -> None:
    """Copies and pickled layers begin the same block."""
    model = torch.nn.Sequential(torch.nn.ReLU(), again(poptorch.BeginBlock(torch.nn.Linear(2, 3), "b", ipu_id=1)))
    assert_placed(_ipus(poptorch, capfd, model), [0, 1])


def test_a_block_function_keeps_its_name_and_result(poptorch: Any) -> None:
    """The decorated function is called with its arguments and looks like the original."""

    @poptorch.BlockFunction(ipu_id=0)
    def weighted(first: int, *, second: int) -> int:
        """Adds."""
        return first + 10 * second

    actual = (weighted(1, second=2), weighted.__name__, weighted.__doc__)
    check.equal(actual=actual, expected=(21, "weighted", "Adds."), what="the function's result, name and docstring")


@pytest.mark.ipus(2)
def test_a_whole_number_names_a_block(poptorch: Any, torch: Any, capfd: Any) -> None:
    """Layers in the blocks 7 and 4 are on the IPUs of their stages, and module_repr tells their ids."""
    layers = [poptorch.BeginBlock(torch.nn.Linear(2, 2), user_id=user_id) for user_id in (7, 4)]
    model = torch.nn.Sequential(*layers)
    stages = (poptorch.Stage(7).ipu(1), poptorch.Stage(4).ipu(0))
    options = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution(*stages))

    assert_placed(_ipus(poptorch, capfd, model, options), [1, 0])
    text = poptorch.module_repr(model)
    check.contains(actual=text, expected="BeginBlock(user_id=4, ipu_id=None) Linear(", what="module_repr")


BAD = ({"user_id": -5}, {"user_id": b"a"}, {"ipu_id": "0"}, {"ipu_id": -1}, {"ipu_id": 0.5}, {"ipu_id": True})


@pytest.mark.parametrize("wrong", BAD, ids=str)
@pytest.mark.parametrize("how", ["Block", "start", "BlockFunction", "BeginBlock"])
def test_ids_are_strings_and_ipus_are_numbers(poptorch: Any, torch: Any, how: str, wrong: Any) -> None:
    """Whatever begins a block refuses other ids and other IPUs at once."""
    begin = {
        "Block": poptorch.Block,
        "start": poptorch.Block.start,
        "BlockFunction": poptorch.BlockFunction,
        "BeginBlock": lambda **arguments: poptorch.BeginBlock(torch.nn.ReLU(), **arguments),
    }[how]

    with check.raises(AssertionError, what=f"{how} with {wrong}"):
        begin(**wrong)


@pytest.mark.parametrize("wrong", [None, 3, "layer"], ids=repr)
def test_begin_block_needs_something_to_call(poptorch: Any, wrong: Any) -> None:
    """What cannot be called cannot begin a block."""
    with check.raises(poptorch.Error, what=f"BeginBlock({wrong!r})"):
        poptorch.BeginBlock(wrong, ipu_id=0)
