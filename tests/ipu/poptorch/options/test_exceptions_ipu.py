"""Exceptions, hooks, custom arguments, profiling marks and comparison."""

from __future__ import annotations

import pickle
from typing import Any, Iterator, List

import pytest

from ..on_device import infer


def test_errors_form_one_family(poptorch: Any) -> None:
    """Recoverable and unrecoverable errors are Errors, and an Error is an Exception."""
    assert issubclass(poptorch.RecoverableError, poptorch.Error)
    assert issubclass(poptorch.UnrecoverableError, poptorch.Error)
    assert issubclass(poptorch.Error, Exception)
    assert not issubclass(poptorch.RecoverableError, poptorch.UnrecoverableError)


def test_an_error_of_the_python_layer_has_its_attributes(poptorch: Any) -> None:
    """createPoptorchError gives an Error with a message, a type and a location; its text holds the message."""
    error = poptorch.createPoptorchError("no such thing")

    assert isinstance(error, poptorch.Error)
    assert error.message == "no such thing"
    assert error.type == "poptorch_py_error"
    assert isinstance(error.location, str)
    assert "no such thing" in str(error)


def test_a_raised_error_has_its_attributes(poptorch: Any, torch: Any) -> None:
    """An error that a model raises says what happened, which part of the stack it comes from, and where."""
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2))
    with pytest.raises(poptorch.Error) as raised:
        model.copyWeightsToHost()

    assert raised.value.message
    assert raised.value.message in str(raised.value)
    assert isinstance(raised.value.type, str)
    assert isinstance(raised.value.location, str)


def test_a_configuration_error_is_found_under_options(poptorch: Any) -> None:
    """ConfigFileError belongs to poptorch.options."""
    assert issubclass(poptorch.options.ConfigFileError, Exception)


@pytest.mark.emulator
def test_a_recoverable_error_says_what_cures_it(poptorch: Any) -> None:
    """recovery_action names the reset; nothing is lost when an error goes from one process to another."""
    error = poptorch.RecoverableError("link down", "poptorch_cpp_error", "device.cpp:7", "IPU_RESET")
    received = pickle.loads(pickle.dumps(error))

    assert (received.message, received.type, received.location) == ("link down", "poptorch_cpp_error", "device.cpp:7")
    assert received.recovery_action == "IPU_RESET"
    assert "device.cpp:7" in str(received)


# Hooks.


@pytest.fixture
def identity(poptorch: Any, torch: Any) -> Any:
    """A model that is not compiled yet."""
    return poptorch.inferenceModel(torch.nn.Identity())


def test_hooks_run_once_around_a_compilation(poptorch: Any, torch: Any, identity: Any) -> None:
    """Hooks run before and after the compilation, once, in the order in which they were registered."""
    calls: List[str] = []
    handles = [
        poptorch.registerPreCompileHook(lambda: calls.append("before")),
        poptorch.registerPreCompileHook(lambda: calls.append("before too")),
        poptorch.registerPostCompileHook(lambda: calls.append("after")),
    ]
    try:
        identity(torch.ones(2))
        identity(torch.ones(2))
    finally:
        for handle in handles:
            handle.remove()

    assert calls == ["before", "before too", "after"]


def test_a_removed_hook_does_not_run(poptorch: Any, torch: Any, identity: Any) -> None:
    """After remove a hook is forgotten, and those that remain still run."""
    calls: List[str] = []
    removed = poptorch.registerPreCompileHook(lambda: calls.append("removed"))
    kept = poptorch.registerPreCompileHook(lambda: calls.append("kept"))
    removed.remove()
    try:
        identity(torch.ones(2))
    finally:
        kept.remove()

    assert calls == ["kept"]


# Arguments.


class Pair:
    """A container of the user's own."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first = first
        self.second = second


def test_a_container_of_the_users_is_an_argument(poptorch: Any, torch: Any) -> None:
    """With a parser registered, a model takes and returns the user's class, and its tensors are dealt out."""

    class Parser(poptorch.ICustomArgParser):
        def yieldTensors(self, struct: Pair) -> Iterator[Any]:
            yield struct.first
            yield struct.second

        def reconstruct(self, original_structure: Pair, tensor_iterator: Iterator[Any]) -> Pair:
            return Pair(next(tensor_iterator), next(tensor_iterator))

    def swap(model: Any, pair: Pair) -> Pair:
        return Pair(pair.second * 2.0, pair.first - pair.first.shape[0])

    poptorch.registerCustomArgParser(Pair, Parser())
    pair = Pair(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    out = infer(poptorch, swap, pair, options=poptorch.Options().deviceIterations(2))

    assert isinstance(out, Pair)
    assert torch.equal(out.first, torch.tensor([6.0, 8.0]))
    assert torch.equal(out.second, torch.tensor([0.0, 1.0]))


def test_a_parser_without_its_methods_cannot_be_made(poptorch: Any) -> None:
    """ICustomArgParser is a class to derive from: both methods are needed."""

    class Half(poptorch.ICustomArgParser):
        def yieldTensors(self, struct: Any) -> Any:
            return iter(())

    with pytest.raises(TypeError):
        Half()


# Profiling and comparison.


def test_marks_do_not_change_what_runs(poptorch: Any) -> None:
    """A channel's tracepoint and instrumented methods give the results of the plain code."""

    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self, by: int) -> int:
            self.count += by
            return self.count

    channel = poptorch.profiling.Channel("mine")
    counter = Counter()
    channel.instrument(counter, "add")
    with channel.tracepoint("two"):
        results = [counter.add(2), counter.add(by=3)]

    assert results == [2, 5]


def test_an_exception_passes_through_a_mark(poptorch: Any) -> None:
    """A tracepoint does not swallow what goes wrong inside it."""
    channel = poptorch.profiling.Channel("mine")

    with pytest.raises(KeyError), channel.tracepoint("fails"):
        raise KeyError("lost")


@pytest.mark.parametrize(("value", "close"), [(2.0, True), (2.5, False)], ids=["equal", "different"])
def test_comparison_of_tensors(poptorch: Any, torch: Any, value: float, close: bool) -> None:
    """testing.allclose tells tensors apart, alone and inside containers."""
    expected, actual = torch.tensor([1.0, 2.0]), torch.tensor([1.0, value])

    assert poptorch.testing.allclose(expected, actual) is close
    assert poptorch.testing.allclose((expected, [expected]), (expected, [actual])) is close


def test_the_text_of_a_module_shows_its_layers(poptorch: Any, torch: Any) -> None:
    """module_repr names the layers of a module."""
    text = poptorch.module_repr(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))

    assert "Sequential" in text
    assert "in_features=2, out_features=3" in text
    assert "ReLU" in text
