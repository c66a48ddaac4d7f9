"""What a model says to questions that come too early, and to arguments that it cannot use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from ipu_conformance import check

from .. import exact
from ..lazily import poptorch, torch
from ..on_device import as_model, assert_refused


def _inference(options: Any = None, *, compiled: bool = False) -> Any:
    model = poptorch.inferenceModel(exact.scale(poptorch, loss=False), options)
    if compiled:
        model(exact.samples(1))
    return model


EARLY: Dict[str, Any] = {
    "getPerfCounters": {name: [[]] for name in ("input", "input_complete", "output", "output_complete")},
    **dict.fromkeys(("getLatency", "getHostIpuLatency", "getComputeLatency", "getIpuHostLatency"), (0.0, 0.0, 0.0)),
    **dict.fromkeys(("isCompiled", "isAttachedToDevice"), False),
}


@pytest.mark.parametrize("name", EARLY)
def test_a_model_that_never_ran_has_no_times(poptorch: Any, name: str) -> None:
    """Before the first run there are no counters, and every latency is zero."""
    check.equal(actual=getattr(_inference(), name)(), expected=EARLY[name], what=f"{name}() before a run")


def _offline() -> None:
    model = _inference(poptorch.Options().connectionType(poptorch.ConnectionType.Never))
    model.compile(exact.samples(1))
    model.attachToDevice()


def _foreign() -> None:
    optimizer = exact.sgd(exact.scale(poptorch))
    poptorch.trainingModel(exact.scale(poptorch), optimizer=optimizer)(exact.samples(1))


def _subclassed() -> None:
    class Own(torch.Tensor):
        pass

    poptorch.trainingModel(exact.scale(poptorch, held=torch.ones(2).as_subclass(Own)))


REFUSED: Dict[str, Tuple[Any, str, Callable[[], Any]]] = {
    "options of another class": ("Error", "options", lambda: poptorch.inferenceModel(exact.scale(poptorch), {})),
    "a function as a model": (TypeError, "Module", lambda: poptorch.inferenceModel(len)),
    "attaching offline": (AssertionError, "offline", _offline),
    "names before compiling": (AssertionError, "compiled", lambda: _inference().getTensorNames()),
    "a tensor that was not anchored": (
        AssertionError, "No tensor with name q", lambda: _inference(compiled=True).getAnchoredTensor("q")
    ),
    "anchoring a tensor that the model does not have": (
        "Error", "", lambda: _inference(poptorch.Options().anchorTensor("a", "nowhere"), compiled=True)
    ),
    "a hook that is a number": (RuntimeError, "callable", lambda: poptorch.registerPreCompileHook(3)),
    "an optimizer of another model": (KeyError, "", _foreign),
    "a buffer of another class": ("Error", "buffers", _subclassed),
    "an optimizer for inference": (
        AssertionError, "inference",
        lambda: poptorch.PoplarExecutor(exact.scale(poptorch), None, False, "0", exact.sgd(exact.scale(poptorch))),
    ),
}  # fmt: skip
"""What is refused: the error, a part of its text, and the call."""


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_model_cannot_use_is_refused(what: str) -> None:
    """The error has the type that the vendor's has."""
    assert_refused(what, *REFUSED[what])


@pytest.mark.parametrize(
    ("error", "kind", "settings"),
    [(ValueError, "Adam", {"amsgrad": True}), (AssertionError, "Adagrad", {})],
    ids=["amsgrad", "kind"],
)
def test_an_optimizer_is_refused_when_the_model_is_wrapped(
    poptorch: Any, torch: Any, error: Any, kind: str, settings: Any
) -> None:
    """What the device has no rule for is an error before anything is compiled, and the model stays as it was."""
    model = exact.scale(poptorch)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.5, **settings)

    with check.raises(error, what=f"wrapping with {kind} and {settings}"):
        poptorch.trainingModel(model, optimizer=optimizer)

    poptorch.trainingModel(model, optimizer=exact.sgd(model))(exact.samples(1))


@pytest.mark.parametrize("wrapped", [True, False], ids=["train", "eval"])
def test_a_model_keeps_the_mode_that_it_was_wrapped_in(poptorch: Any, torch: Any, wrapped: bool) -> None:
    """Setting the user's model to the other mode later, before it is compiled, does not change the wrapped one."""
    model = as_model(lambda model, x: x * (2 if model.training else 3)).train(wrapped)
    inference = poptorch.inferenceModel(model)
    model.train(not wrapped)

    exact.assert_same(inference(torch.ones(2)), torch.full((2,), 2.0 if wrapped else 3.0), "the output")


def test_a_destroyed_model_compiles_again(poptorch: Any) -> None:
    """Calling a model after destroy compiles it once more."""
    model = _inference(compiled=True)
    expected = model(exact.samples(1))
    model.destroy()

    exact.assert_same(model(exact.samples(1)), expected, "the output after destroy")
    check.equal(actual=model.isCompiled(), expected=True, what="isCompiled() after the call")


def test_hooks_of_after_run_when_compiling_fails(poptorch: Any) -> None:
    """A hook that cleans up can rely on being called."""
    calls: List[str] = []

    def forward(model: Any, x: Any) -> Any:
        raise KeyError("lost")

    handle = poptorch.registerPostCompileHook(lambda: calls.append("after"))
    try:
        with check.raises(KeyError, match="lost", what="a KeyError in forward"):
            poptorch.inferenceModel(as_model(forward))(exact.samples(1))
    finally:
        handle.remove()

    check.equal(actual=calls, expected=["after"], what="the list of the hooks that ran")


def test_an_input_that_is_not_contiguous_is_told_once(poptorch: Any, torch: Any, said: Callable[[], str]) -> None:
    """A transposed input has the values that it shows, and a model warns of the first one only."""
    across = torch.arange(6.0).reshape(2, 3)
    inference = poptorch.inferenceModel(as_model(lambda model, x: x * 2))
    said_by_call = []
    for x in (across.t().contiguous(), across.t(), across.t() + 0):
        out = inference(x)
        said_by_call.append(said().count("not contiguous"))

    # Where the log is collected beside what is printed, a line is found twice in its call and once later.
    never, first, again = said_by_call
    check.equal(actual=out.tolist(), expected=[[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]], what="the output")
    check.equal(actual=never, expected=0, what="the number of warnings of a contiguous input")
    check.holds(first > again, f"The warning is found {first} times at the first such input and {again} at the next.")


def test_an_input_with_a_gradient_is_detached(poptorch: Any, said: Callable[[], str]) -> None:
    """The model runs, says so, and its output has no gradient."""
    x = exact.samples(1).requires_grad_()
    out = _inference()(x)

    check.equal(actual=out.requires_grad, expected=False, what="requires_grad of the output")
    check.contains(actual=said(), expected="requires_grad", what="what is said of the input")


def test_a_model_is_saved_into_a_folder(poptorch: Any, tmp_path: Path) -> None:
    """A folder in the place of a file gets model.poptorch; folders on the way to a file are made."""
    model = _inference(compiled=True)
    model.save(str(tmp_path), export_model=False)
    model.save(str(tmp_path / "new" / "file"), export_model=False)

    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    check.equal(actual=written, expected=["model.poptorch", "new/file"], what="the list of files")


def test_a_parametrized_layer_runs(poptorch: Any, torch: Any) -> None:
    """A weight that torch computes from others is computed on the device; whole numbers are exact."""
    layer = torch.nn.Linear(2, 2, bias=False)

    class Doubled(torch.nn.Module):
        def forward(self, weight: Any) -> Any:
            return weight * 2

    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Doubled())

    actual = poptorch.inferenceModel(layer)(torch.tensor([[1.0, 10.0]]))

    exact.assert_same(actual, torch.tensor([[42.0, 86.0]]), "the output")
