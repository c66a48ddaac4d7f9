"""What a program asks of the emulated PopTorch, and what it registers there."""

from __future__ import annotations

from typing import Any, List

import pytest
import torch
from torch.utils import _pytree as pytree

from ipu_conformance.emulator.poptorch.api import testing
from ipu_conformance.emulator.poptorch.api.profiling import Channel
from ipu_conformance.emulator.poptorch.compile import blocks, capture, observers
from ipu_conformance.emulator.poptorch.options.diagnostics import Error, RecoverableError
from ipu_conformance.emulator.poptorch.run import arguments, hardware


def test_a_model_is_on_the_ipu_while_it_is_captured() -> None:
    """While a model is captured its code runs on the IPU, and every tensor has a number that stays the same."""
    told: List[Any] = []

    class Asks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2.0
            told.extend([hardware.isRunningOnIpu(), *(hardware.getIpuTensorId(value) for value in (x, y, x))])
            return y

    capture.capture(Asks(), (torch.ones(2),), {})
    running, first, second, again = told[-4:]

    assert running
    assert first == again != second
    assert not hardware.isRunningOnIpu()


@pytest.mark.parametrize("value", [torch.ones(1), 3], ids=["host-tensor", "number"])
def test_what_is_not_on_the_ipu_has_no_number(value: Any) -> None:
    """Asking for the number of something that is not on the device is an error."""
    with pytest.raises(Error):
        hardware.getIpuTensorId(value)


def test_no_ipus_cannot_be_asked_for() -> None:
    """The number of IPUs asked for is 1 or more."""
    with pytest.raises(AssertionError, match="1 or more"):
        hardware.ipuHardwareIsAvailable(0)


def test_hooks_run_in_order_until_removed() -> None:
    """Hooks of before and after are kept apart."""
    calls: List[str] = []
    before = observers.registerPreCompileHook(lambda: calls.append("before"))
    after = observers.registerPostCompileHook(lambda: calls.append("after"))
    with observers.compilation():
        calls.append("compiling")
    before.remove()
    with observers.compilation():
        after.remove()

    assert calls == ["before", "compiling", "after"]
    with pytest.raises(RuntimeError, match="callable"):
        observers.registerPreCompileHook(3)  # type: ignore[arg-type]


class Box:
    """A container of one tensor and a label."""

    def __init__(self, label: str, tensor: torch.Tensor) -> None:
        self.label = label
        self.tensor = tensor


class BoxParser(arguments.ICustomArgParser):
    """Takes the tensor out and keeps the label."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def yieldTensors(self, struct: Box) -> Any:
        yield struct.tensor

    def reconstruct(self, original_structure: Box, tensor_iterator: Any) -> Box:
        return Box(original_structure.label + self.mark, next(tensor_iterator))


def test_a_later_parser_replaces_an_earlier_one() -> None:
    """Containers are taken apart and put together by the parser that was registered last."""
    arguments.registerCustomArgParser(Box, BoxParser("?"))
    arguments.registerCustomArgParser(Box, BoxParser("!"))
    leaves, structure = pytree.tree_flatten([Box("a", torch.ones(1)), torch.zeros(1)])
    rebuilt = pytree.tree_unflatten([leaf + 1 for leaf in leaves], structure)

    assert len(leaves) == 2
    assert rebuilt[0].label == "a!"
    assert torch.equal(rebuilt[0].tensor, torch.full((1,), 2.0))
    assert structure == pytree.tree_structure([Box("b", torch.zeros(3)), 1.0])


def test_only_parsers_for_classes_are_registered() -> None:
    """The class and the parser are checked."""
    with pytest.raises(AssertionError, match="a parser is registered for a class"):
        arguments.registerCustomArgParser(3, BoxParser("!"))  # type: ignore[arg-type]
    with pytest.raises(Error, match="ICustomArgParser"):
        arguments.registerCustomArgParser(Box, object())  # type: ignore[arg-type]


def test_a_block_shows_in_the_text_of_its_layer() -> None:
    """A layer at which a block begins names the block; without blocks the text is torch's own."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.ReLU()))

    assert blocks.module_repr(model) == repr(model)

    blocks.BeginBlock(model[1], user_id="B", ipu_id=1)

    assert "(1): BeginBlock(user_id=B, ipu_id=1) Sequential(" in blocks.module_repr(model)
    with pytest.raises(AssertionError, match=r"torch\.nn\.Module"):
        blocks.module_repr(3)


def test_marks_are_kept_in_order() -> None:
    """Every mark that ended is kept with its name, an instrumented method under its class and name."""
    channel = Channel("mine")
    values: Any = type("Values", (), {"get": lambda self: 7})()
    channel.instrument(values, "get")
    with channel.tracepoint("outer"):
        assert values.get() == 7

    inner, outer = channel.spans
    assert (inner.name, outer.name) == ("Values.get", "outer")
    assert outer.begin <= inner.begin <= inner.end <= outer.end


ONE, TWO = torch.tensor([1.0]), torch.tensor([2.0])


@pytest.mark.parametrize(
    ("expected", "actual", "close"),
    [
        (ONE, ONE.half(), False),
        (ONE, ONE[0], False),
        ({"a": ONE}, {"a": ONE}, True),
        ({"a": ONE}, {"b": ONE}, False),
        ({"a": ONE}, [ONE], False),
        ([ONE, TWO], (ONE, TWO), False),
        ((ONE, TWO), (ONE, TWO), True),
        ([ONE, TWO], [ONE], False),
        ([ONE, [TWO]], [ONE, [ONE]], False),
        (1.0, 1, True),
        (1.0, 2.0, False),
        ("a", "a", True),
        (ONE, "a", False),
    ],
)
def test_comparison_looks_into_containers(expected: Any, actual: Any, close: bool) -> None:
    """Structure, shape, values and the types of containers and tensors count."""
    assert testing.allclose(expected, actual) is close


def test_the_text_of_an_error() -> None:
    """An error shows its type, and its location where there is one."""
    assert str(Error("lost")) == "'poptorch_py_error': lost"
    assert str(RecoverableError("lost", "hardware", "a.cpp:1", "IPU_RESET")) == "In a.cpp:1: 'hardware': lost"
