"""Blocks in every spelling: where operations go, what has an end, and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any, List

import pytest

from ..ops.on_device import gradient
from .placed import SPELLINGS, chain, placements, samples


def _where(lines: List[str]) -> List[int]:
    """The IPUs of the operations in order."""
    return [int(line.split("ipu(")[1].split(")")[0]) for line in lines]


def _sharded(poptorch: Any) -> Any:
    made = poptorch.Options().autoRoundNumIPUs(True)
    return made.setExecutionStrategy(poptorch.ShardedExecution())


def _model(forward: Any) -> Any:
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 3)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Model()


def _placed(poptorch: Any, capfd: Any, forward: Any) -> List[int]:
    inference = poptorch.inferenceModel(_model(forward), _sharded(poptorch))
    return _where(placements(capfd, poptorch, lambda: inference(samples(2))))


@pytest.mark.ipus(4)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_places_the_layers(poptorch: Any, capfd: Any, spelling: str) -> None:
    """The operations of a layer are on the IPU of its block."""
    inference = poptorch.inferenceModel(chain(poptorch, (1, 0, 3), spelling, loss=False), _sharded(poptorch))

    assert _where(placements(capfd, poptorch, lambda: inference(samples(2)))) == [1, 0, 3]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_blocks_do_nothing_on_the_host(poptorch: Any, spelling: str) -> None:
    """A model with blocks runs on the host as one without."""
    with_blocks, without = chain(poptorch, (1, 0), spelling, loss=False), chain(poptorch, (0, 0), "none", loss=False)

    assert (with_blocks(samples(5)) == without(samples(5))).all()


@pytest.mark.ipus(2)
def test_operations_before_the_first_block_are_on_ipu_zero(poptorch: Any, capfd: Any) -> None:
    """A model may compute before it begins a block."""

    def forward(model: Any, x: Any) -> Any:
        x = x * 2
        poptorch.Block.start(ipu_id=1)
        return x + 1

    assert _placed(poptorch, capfd, forward) == [0, 1]


@pytest.mark.ipus(2)
def test_a_started_block_has_no_end(poptorch: Any, capfd: Any) -> None:
    """Block.start holds until another block begins, also after the function that called it."""

    def inside(x: Any) -> Any:
        poptorch.Block.start(ipu_id=1)
        return x * 2

    assert _placed(poptorch, capfd, lambda model, x: inside(x + 3) - 1) == [0, 1]


@pytest.mark.ipus(2)
def test_begin_block_has_no_end(poptorch: Any, capfd: Any) -> None:
    """What follows a layer with BeginBlock stays in its block."""
    model = _model(lambda model, x: model.layer(x * 2) + 1)
    poptorch.BeginBlock(model.layer, ipu_id=1)
    inference = poptorch.inferenceModel(model, _sharded(poptorch))

    assert _where(placements(capfd, poptorch, lambda: inference(samples(2)))) == [0, 1]


@pytest.mark.ipus(2)
def test_begin_block_takes_a_function(poptorch: Any, capfd: Any) -> None:
    """For a function BeginBlock returns one that begins the block."""

    def double(x: Any) -> Any:
        return x * 2

    begun = poptorch.BeginBlock(double, "double", ipu_id=1)

    assert _placed(poptorch, capfd, lambda model, x: begun(x - 1)) == [0, 1]
    assert begun(3) == 6


@pytest.mark.ipus(2)
def test_a_block_inside_a_block_ends_with_its_own(poptorch: Any, capfd: Any) -> None:
    """After an inner block, operations are in the outer one again."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.Block("outer", ipu_id=0):
            x = x * 2
            with poptorch.Block("inner", ipu_id=1):
                x = x + 1
            return x - 3

    assert _placed(poptorch, capfd, forward) == [0, 1, 0]


@pytest.mark.ipus(2)
def test_one_block_object_can_be_entered_again(poptorch: Any, capfd: Any) -> None:
    """The same object opens the same block each time."""
    block = poptorch.Block("again", ipu_id=1)

    def forward(model: Any, x: Any) -> Any:
        with block:
            x = x * 2
        with poptorch.Block("between", ipu_id=0):
            x = x + 1
        with block:
            return x - 3

    assert _placed(poptorch, capfd, forward) == [1, 0, 1]


def _after_with(poptorch: Any) -> Any:
    def forward(model: Any, x: Any) -> Any:
        with poptorch.Block(ipu_id=0):
            x = x * 2
        return x + 1

    return forward


def _after_function(poptorch: Any) -> Any:
    @poptorch.BlockFunction("inside", ipu_id=0)
    def inside(x: Any) -> Any:
        return x * 2

    return lambda model, x: inside(x) + 1


def _between(poptorch: Any) -> Any:
    def forward(model: Any, x: Any) -> Any:
        with poptorch.Block("a"):
            x = x * 2
        x = x + 1
        with poptorch.Block("b"):
            return x - 3

    return forward


@pytest.mark.parametrize("forward", [_after_with, _after_function, _between])
def test_operations_outside_a_closed_block_are_refused(poptorch: Any, forward: Any) -> None:
    """Once a block has ended, every operation must be in a block."""
    inference = poptorch.inferenceModel(_model(forward(poptorch)), _sharded(poptorch))

    with pytest.raises(poptorch.Error, match="No active Block"):
        inference(samples(2))


@pytest.mark.ipus(2)
def test_a_block_that_is_started_after_a_closed_one_is_active(poptorch: Any, capfd: Any) -> None:
    """A block without an end may follow one that has ended."""

    def forward(model: Any, x: Any) -> Any:
        with poptorch.Block(ipu_id=0):
            x = x * 2
        poptorch.Block.start(ipu_id=1)
        return x + 1

    assert _placed(poptorch, capfd, forward) == [0, 1]


@pytest.mark.ipus(2)
def test_an_exception_inside_a_block_ends_it(poptorch: Any, capfd: Any) -> None:
    """A block ends also when what is inside fails and the model goes on."""

    def forward(model: Any, x: Any) -> Any:
        poptorch.Block.start("outer", ipu_id=0)
        try:
            with poptorch.Block("inner", ipu_id=1):
                x = x * 2
                raise KeyError("inside")
        except KeyError:
            return x + 1

    assert _placed(poptorch, capfd, forward) == [1, 0]


@pytest.mark.ipus(2)
def test_a_block_is_on_one_ipu(poptorch: Any) -> None:
    """Two blocks of one id are one block, which cannot be on two IPUs."""

    def forward(model: Any, x: Any) -> Any:
        poptorch.Block.start("same", ipu_id=0)
        x = x * 2
        poptorch.Block.start("same", ipu_id=1)
        return x + 1

    with pytest.raises(poptorch.Error, match="same"):
        poptorch.inferenceModel(_model(forward), _sharded(poptorch))(samples(2))


@pytest.mark.ipus(2)
def test_operations_without_gradients_are_in_their_blocks(poptorch: Any, torch: Any, capfd: Any) -> None:
    """A region of torch.no_grad is no block: what is inside is placed by the blocks that it begins."""

    def forward(model: Any, x: Any) -> Any:
        with torch.no_grad():
            x = x * 2
            poptorch.Block.start(ipu_id=1)
            x = x + 1
        poptorch.Block.start(ipu_id=0)
        return x - 3

    assert _placed(poptorch, capfd, forward) == [0, 1, 0]


def test_a_region_without_gradients_stops_them(poptorch: Any, torch: Any) -> None:
    """A weight that is used with and without its gradient gets the gradient of the first use only."""

    def forward(model: Any, x: Any) -> Any:
        with torch.no_grad():
            scale = x * model.weight
        return poptorch.identity_loss(scale * model.weight, "sum")

    made = gradient(poptorch, forward, torch.tensor([2.0, -1.0]), torch.tensor([[3.0, 5.0]]))

    assert made.tolist() == [6.0, -5.0]


def test_begin_block_changes_the_layer_in_place(poptorch: Any, torch: Any) -> None:
    """BeginBlock returns the layer itself, which keeps its type, its weights and its text."""
    layer = torch.nn.Linear(2, 3)
    names, text = list(layer.state_dict()), repr(layer)
    returned = poptorch.BeginBlock(layer, "block", ipu_id=0)

    assert returned is layer
    assert isinstance(layer, torch.nn.Linear)
    assert list(layer.state_dict()) == names
    assert repr(layer) == text


def test_a_layer_is_in_one_block(poptorch: Any, torch: Any) -> None:
    """A second BeginBlock on the same layer is refused."""
    layer = poptorch.BeginBlock(torch.nn.Linear(2, 3), "first", ipu_id=0)

    with pytest.raises(poptorch.Error, match="first"):
        poptorch.BeginBlock(layer, "second", ipu_id=1)


@pytest.mark.ipus(2)
def test_remove_blocks_takes_all_of_them_back(poptorch: Any, torch: Any, capfd: Any) -> None:
    """Afterwards the layers have their own classes, everything is on IPU 0, and blocks can be given anew."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.Linear(3, 2)))
    poptorch.BeginBlock(model[0], "first", ipu_id=0)
    poptorch.BeginBlock(model[1][0], "second", ipu_id=1)
    poptorch.removeBlocks(model)

    assert type(model[0]) is type(model[1][0]) is torch.nn.Linear
    inference = poptorch.inferenceModel(model, _sharded(poptorch))
    assert set(_where(placements(capfd, poptorch, lambda: inference(samples(2))))) == {0}
    poptorch.BeginBlock(torch.nn.Sequential(*copy.deepcopy(model)), "again")


@pytest.mark.ipus(2)
@pytest.mark.parametrize("again", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_of_a_layer_keeps_its_block(poptorch: Any, torch: Any, capfd: Any, again: Any) -> None:
    """Copies and pickled layers begin the same block."""
    model = torch.nn.Sequential(torch.nn.ReLU(), again(poptorch.BeginBlock(torch.nn.Linear(2, 3), "b", ipu_id=1)))
    inference = poptorch.inferenceModel(model, _sharded(poptorch))

    assert _where(placements(capfd, poptorch, lambda: inference(samples(2)))) == [0, 1]


def test_a_block_function_keeps_its_name_and_result(poptorch: Any) -> None:
    """The decorated function is called with its arguments and looks like the original."""

    @poptorch.BlockFunction(ipu_id=0)
    def weighted(first: int, *, second: int) -> int:
        """Adds."""
        return first + 10 * second

    assert weighted(1, second=2) == 21
    assert (weighted.__name__, weighted.__doc__) == ("weighted", "Adds.")


BAD = ({"user_id": 5}, {"user_id": b"a"}, {"ipu_id": "0"}, {"ipu_id": -1}, {"ipu_id": 0.5}, {"ipu_id": True})


@pytest.mark.parametrize("wrong", BAD, ids=str)
@pytest.mark.parametrize("how", ["Block", "start", "BlockFunction", "BeginBlock"])
def test_ids_are_strings_and_ipus_are_numbers(poptorch: Any, torch: Any, how: str, wrong: Any) -> None:
    """Whatever begins a block refuses other ids and other IPUs at once."""
    begin = {
        "Block": poptorch.Block,
        "start": poptorch.Block.start,
        "BlockFunction": poptorch.BlockFunction,
        "BeginBlock": lambda **given: poptorch.BeginBlock(torch.nn.ReLU(), **given),
    }[how]

    with pytest.raises(AssertionError):
        begin(**wrong)


@pytest.mark.parametrize("wrong", [None, 3, "layer"], ids=repr)
def test_begin_block_needs_something_to_call(poptorch: Any, wrong: Any) -> None:
    """What cannot be called cannot begin a block."""
    with pytest.raises(AssertionError):
        poptorch.BeginBlock(wrong, ipu_id=0)
