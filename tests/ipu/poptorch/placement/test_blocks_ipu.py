"""Blocks in every spelling: where operations go, what has an end, and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Callable, Dict, Sequence

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..lazily import poptorch, torch
from ..on_device import as_model, gradient
from .placed import SPELLINGS, assert_ipus, chain, samples


def _assert_ipus(capfd: Any, model: Any, expected: Sequence[int], options: Any = None) -> None:
    __tracebackhide__ = True
    if options is None:
        options = poptorch.Options().autoRoundNumIPUs(True).setExecutionStrategy(poptorch.ShardedExecution())
    assert_ipus(capfd, poptorch.inferenceModel(model, options), expected)


@pytest.mark.ipus(4)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_places_the_layers(capfd: Any, spelling: str) -> None:
    """The operations of a layer are on the IPU of its block."""
    _assert_ipus(capfd, chain((1, 0, 3), spelling, loss=False), [1, 0, 3])


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_blocks_do_nothing_on_the_host(spelling: str) -> None:
    """A model with blocks runs on the host as one without."""
    with_blocks, without = chain((1, 0), spelling, loss=False), chain((0, 0), "none", loss=False)

    assert_same(with_blocks(samples(5)), without(samples(5)), "the output on the host")


def before_the_first_block(model: Any, x: Any) -> Any:
    """A model may compute before it begins a block: that is on IPU 0."""
    x = x * 2
    poptorch.Block.start(ipu_id=1)
    return x + 1


def started_in_a_function(model: Any, x: Any) -> Any:
    """Block.start holds until another block begins, also after the function that called it."""

    def inside(x: Any) -> Any:
        poptorch.Block.start(ipu_id=1)
        return x * 2

    return inside(x + 3) - 1


def nested(model: Any, x: Any) -> Any:
    """After an inner block, operations are in the outer one again."""
    with poptorch.Block("outer", ipu_id=0):
        x = x * 2
        with poptorch.Block("inner", ipu_id=1):
            x = x + 1
        return x - 3


def entered_again(model: Any, x: Any) -> Any:
    """The same object opens the same block each time."""
    block = poptorch.Block("again", ipu_id=1)
    with block:
        x = x * 2
    with poptorch.Block("between", ipu_id=0):
        x = x + 1
    with block:
        return x - 3


def started_after_a_closed_one(model: Any, x: Any) -> Any:
    """A block without an end may follow one that has ended."""
    with poptorch.Block(ipu_id=0):
        x = x * 2
    poptorch.Block.start(ipu_id=1)
    return x + 1


def left_by_an_exception(model: Any, x: Any) -> Any:
    """A block ends also when what is inside fails and the model goes on."""
    poptorch.Block.start("outer", ipu_id=0)
    try:
        with poptorch.Block("inner", ipu_id=1):
            x = x * 2
            raise KeyError("inside")
    except KeyError:
        return x + 1


def without_gradients(model: Any, x: Any) -> Any:
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
def test_an_operation_is_in_the_block_that_is_open(capfd: Any, forward: Any) -> None:
    """Every operation is on the IPU of the block that is open where it is written."""
    _assert_ipus(capfd, as_model(forward), PLACED[forward])


def _doubled() -> Any:
    return poptorch.BeginBlock(lambda x: x * 2, "double", ipu_id=1)


def _copied(copied: Callable[[Any], Any]) -> Any:
    return torch.nn.Sequential(torch.nn.ReLU(), copied(poptorch.BeginBlock(torch.nn.Linear(2, 3), "b", ipu_id=1)))


BEGUN: Dict[str, Callable[[], Any]] = {
    # What follows a layer with BeginBlock stays in its block.
    "without-end": lambda: as_model(
        lambda model, x: model.layer(x * 2) + 1, layer=poptorch.BeginBlock(torch.nn.Linear(2, 3), ipu_id=1)
    ),
    "function": lambda: as_model(lambda model, x: _doubled()(x - 1)),
    "layer-of-a-model": lambda: torch.nn.Sequential(torch.nn.ReLU(), _doubled()),
    "copied": lambda: _copied(copy.deepcopy),
    "pickled": lambda: _copied(lambda layer: pickle.loads(pickle.dumps(layer))),
}


@pytest.mark.ipus(2)
@pytest.mark.parametrize("name", BEGUN)
def test_begin_block_has_no_end(capfd: Any, name: str) -> None:
    """From a layer or function with BeginBlock on, operations are in its block, also where the layer was copied."""
    _assert_ipus(capfd, BEGUN[name](), [0, 1])


def test_a_begun_function_is_a_layer_of_a_model() -> None:
    """What BeginBlock makes of a function is a module that computes what the function does."""
    check.instance(actual=_doubled(), expected=torch.nn.Module, what="BeginBlock of a function")
    check.equal(actual=_doubled()(3), expected=6, what="what the function returns on the host")


def test_a_region_without_gradients_stops_them() -> None:
    """A weight that is used with and without its gradient gets the gradient of the first use only."""

    def forward(model: Any, x: Any) -> Any:
        with torch.no_grad():
            scale = x * model.weight
        return poptorch.identity_loss(scale * model.weight, "sum")

    passed = gradient(poptorch, forward, torch.tensor([2.0, -1.0]), torch.tensor([[3.0, 5.0]]))

    assert_same(passed, torch.tensor([6.0, -5.0]), "the gradient")


def test_begin_block_changes_the_layer_in_place() -> None:
    """BeginBlock returns the layer itself, which keeps its type, its weights and its text."""
    layer = torch.nn.Linear(2, 3)
    before = (list(layer.state_dict()), repr(layer))
    returned = poptorch.BeginBlock(layer, "block", ipu_id=0)

    check.holds(returned is layer, f"BeginBlock returns {returned}, not the layer itself.")
    check.instance(actual=layer, expected=torch.nn.Linear, what="the layer")
    after = (list(layer.state_dict()), repr(layer))
    check.equal(actual=after, expected=before, what="the pair of the weights' names and the layer's text")


@pytest.mark.ipus(2)
def test_remove_blocks_takes_all_of_them_back(capfd: Any) -> None:
    """Afterwards the layers have their own classes, everything is on IPU 0, and blocks can be given again."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.Linear(3, 2)))
    poptorch.BeginBlock(model[0], "first", ipu_id=0)
    poptorch.BeginBlock(model[1][0], "second", ipu_id=1)
    poptorch.removeBlocks(model)

    types = [type(model[0]), type(model[1][0])]
    check.equal(actual=types, expected=[torch.nn.Linear] * 2, what="the type of each layer")
    _assert_ipus(capfd, model, [0])
    again = torch.nn.Sequential(copy.deepcopy(model[0]), poptorch.BeginBlock(copy.deepcopy(model[1][0]), ipu_id=1))
    _assert_ipus(capfd, again, [0, 1])


def test_a_block_function_keeps_its_name_and_result() -> None:
    """The decorated function is called with its arguments and looks like the original."""

    @poptorch.BlockFunction(ipu_id=0)
    def weighted(first: int, *, second: int) -> int:
        """Adds."""
        return first + 10 * second

    actual = (weighted(1, second=2), weighted.__name__, weighted.__doc__)
    check.equal(actual=actual, expected=(21, "weighted", "Adds."), what="the function's result, name and docstring")


@pytest.mark.ipus(2)
def test_a_whole_number_names_a_block(capfd: Any) -> None:
    """Layers in the blocks 7 and 4 are on the IPUs of their stages, and module_repr tells their ids."""
    layers = [poptorch.BeginBlock(torch.nn.Linear(2, 2), user_id=user_id) for user_id in (7, 4)]
    model = torch.nn.Sequential(*layers)
    stages = (poptorch.Stage(7).ipu(1), poptorch.Stage(4).ipu(0))
    options = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution(*stages))

    _assert_ipus(capfd, model, [1, 0], options)
    text = poptorch.module_repr(model)
    check.contains(actual=text, expected="BeginBlock(user_id=4, ipu_id=None) Linear(", what="module_repr")
