"""Exceptions, hooks, custom arguments, profiling marks and comparison."""

from __future__ import annotations

import pickle
from typing import Any, Iterator, List

import pytest

from ipu_conformance import check

from ..exact import assert_same
from ..on_device import infer


def test_errors_form_one_family(poptorch: Any) -> None:
    """Recoverable and unrecoverable errors are Errors; an Error is an Exception, as is options.ConfigFileError."""
    recoverable, unrecoverable = poptorch.RecoverableError, poptorch.UnrecoverableError
    bases = {recoverable: poptorch.Error, unrecoverable: poptorch.Error, poptorch.options.ConfigFileError: Exception}
    for error, base in {**bases, poptorch.Error: Exception}.items():
        check.contains(actual=error.__mro__, expected=base, what=f"the list of what {error.__name__} is")
    check.lacks(actual=recoverable.__mro__, unexpected=unrecoverable, what="the list of what RecoverableError is")


def assert_error(error: Any, *, message: Any, type: Any) -> None:
    """An error has a message, which its text holds, a type and a location."""
    __tracebackhide__ = True
    actual = (error.message, error.type)
    check.equal(actual=actual, expected=(message, type), what="the message and the type of the error")
    check.contains(actual=str(error), expected=message, what="the text of the error")
    check.instance(actual=error.location, expected=str, what="the location of the error")


def test_an_error_of_the_python_layer_has_its_attributes(poptorch: Any) -> None:
    """createPoptorchError gives an Error with a message, a type and a location; its text holds the message."""
    error = poptorch.createPoptorchError("no such thing")

    check.instance(actual=error, expected=poptorch.Error, what="what createPoptorchError gives")
    assert_error(error, message="no such thing", type="poptorch_py_error")


def test_a_raised_error_has_its_attributes(poptorch: Any, torch: Any) -> None:
    """An error that a model raises says what happened, which part of the stack it comes from, and where."""
    model = poptorch.inferenceModel(torch.nn.Linear(2, 2))
    with check.raises(poptorch.Error, what="copyWeightsToHost before compiling") as raised:
        model.copyWeightsToHost()

    error: Any = raised.value
    check.holds(error.message, "the error has no message.")
    check.instance(actual=error.type, expected=str, what="the type of the error")
    assert_error(error, message=error.message, type=error.type)


@pytest.mark.emulator
def test_a_recoverable_error_says_what_cures_it(poptorch: Any) -> None:
    """recovery_action names the reset; nothing is lost when an error goes from one process to another."""
    error = poptorch.RecoverableError("link down", "poptorch_cpp_error", "device.cpp:7", "IPU_RESET")
    received = pickle.loads(pickle.dumps(error))

    assert_error(received, message="link down", type="poptorch_cpp_error")
    actual = (received.location, received.recovery_action)
    check.equal(actual=actual, expected=("device.cpp:7", "IPU_RESET"), what="the location and the recovery action")
    check.contains(actual=str(received), expected="device.cpp:7", what="the text of the error")


# Hooks.


def test_hooks_run_once_around_a_compilation(poptorch: Any, torch: Any) -> None:
    """Hooks run before and after the compilation, once, in the order in which they were registered, until removed."""
    calls: List[str] = []
    model = poptorch.inferenceModel(torch.nn.Identity())
    removed, *handles = [
        poptorch.registerPreCompileHook(lambda: calls.append("removed")),
        poptorch.registerPreCompileHook(lambda: calls.append("before")),
        poptorch.registerPreCompileHook(lambda: calls.append("before too")),
        poptorch.registerPostCompileHook(lambda: calls.append("after")),
    ]
    removed.remove()
    try:
        for _ in range(2):
            model(torch.ones(2))
    finally:
        for handle in handles:
            handle.remove()

    check.equal(actual=calls, expected=["before", "before too", "after"], what="the list of the hooks that ran")


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

    check.instance(actual=out, expected=Pair, what="the output")
    assert_same(out.first, torch.tensor([6.0, 8.0]), "the first of the pair")
    assert_same(out.second, torch.tensor([0.0, 1.0]), "the second of the pair")


def test_a_parser_without_its_methods_cannot_be_made(poptorch: Any) -> None:
    """ICustomArgParser is a class to derive from: both methods are needed."""

    class Half(poptorch.ICustomArgParser):
        def yieldTensors(self, struct: Any) -> Any:
            return iter(())

    with check.raises(TypeError, what="a parser without reconstruct"):
        Half()


# Profiling and comparison.


def test_marks_do_not_change_what_runs(poptorch: Any) -> None:
    """A channel's tracepoint and instrumented methods give the results of the plain code, and swallow no exception."""

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

    check.equal(actual=results, expected=[2, 5], what="the list of results")
    with check.raises(KeyError, match="lost", what="a KeyError in a tracepoint"), channel.tracepoint("fails"):
        raise KeyError("lost")


@pytest.mark.parametrize(("value", "close"), [(2.0, True), (2.5, False)], ids=["equal", "different"])
def test_comparison_of_tensors(poptorch: Any, torch: Any, value: float, close: bool) -> None:
    """testing.allclose tells tensors apart, alone and inside containers."""
    expected, actual = torch.tensor([1.0, 2.0]), torch.tensor([1.0, value])

    for pair in ((expected, actual), ((expected, [expected]), (expected, [actual]))):
        check.equal(actual=poptorch.testing.allclose(*pair), expected=close, what=f"allclose{pair}")


STRUCTURES = {
    "same": ("[one, (one, two), [two]]", "[one, (one, two), [two]]", True),
    "third": ("[one, two, one]", "[one, two, two]", False),
    "list for tuple": ("(one, two)", "[one, two]", False),
    "tuple for list": ("[one, two]", "(one, two)", False),
    "deeper": ("[one, (one, two)]", "[one, [one, two]]", False),
    "shorter": ("(one, two, one)", "(one, two)", False),
    "longer": ("[one, two]", "[one, two, one]", False),
}
"""Two nests of tensors, and whether they are close: only where lists, tuples and lengths are alike (testing.py)."""


@pytest.mark.parametrize("name", STRUCTURES)
def test_comparison_of_nests(poptorch: Any, torch: Any, name: str) -> None:
    """testing.allclose compares the structure before the values."""
    *texts, close = STRUCTURES[name]
    tensors = {"one": torch.tensor([1.0, 2.0]), "two": torch.tensor([1.0, 2.5])}
    expected, actual = (eval(text, dict(tensors)) for text in texts)

    check.equal(actual=poptorch.testing.allclose(expected, actual), expected=close, what=f"allclose of {name}")


def test_the_text_of_a_module_shows_its_layers(poptorch: Any, torch: Any) -> None:
    """module_repr names the layers of a module."""
    text = poptorch.module_repr(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))

    for part in ("Sequential", "in_features=2, out_features=3", "ReLU"):
        check.contains(actual=text, expected=part, what="the text of the module")
